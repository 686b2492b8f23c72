"""The files of a store, and how a repair puts a new store in their place (DECISIONS D405).

    log.db, -wal, -shm, -journal, .mark     the store
    log.db.draft                            the store that a repair is writing
    log.db.new, log.db.new.mark             the same store once it is whole, in one file
    log.db.damaged-1, and its endings       what a repair has replaced; no repair reads it
    log.db.lost-1-wal                       a WAL that SQLite did not read to its end

A whole new store takes the place of `log.db` by renames. They begin with `log.db` and end with
`log.db.new`, so one look says where a repair was cut short: while `log.db` is there, nothing
of it has been moved; once it is gone, all that it held and could be read is in `log.db.new`.
"""

import os
import re
from pathlib import Path

from replica.io.files import sync_folder
from replica.refusals import StoreFull

_BESIDE = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps beside a database, and reads into it."""
_MARK = ".mark"


def draft_of(path: Path) -> Path:
    """Return the path of the store that a repair of the one at `path` is writing."""
    return _named(path, ".draft")


def new_of(path: Path) -> Path:
    """Return the path of the whole store that takes the place of the one at `path`."""
    return _named(path, ".new")


def is_cut_short(path: Path) -> bool:
    """Say whether a whole new store waits for the name of one that has been set aside."""
    return not path.exists() and new_of(path).exists()


def was_replaced(path: Path) -> bool:
    """Say whether a repair has set files of this store aside."""
    return bool(_newest_number(path))


def lost_ends(path: Path) -> list[Path]:
    """Return the WALs that SQLite did not read to their ends, since the last repair."""
    return [path.with_name(name) for name, _ in _numbered(path, r"\.lost-(\d+)-wal")]


def next_lost_end(path: Path) -> Path:
    """Return a free name for one more such WAL."""
    numbers = [number for _, number in _numbered(path, r"\.lost-(\d+)-wal")]
    return _named(path, f".lost-{max(numbers, default=0) + 1}-wal")


def discard_unfinished(path: Path) -> None:
    """Delete what a repair wrote that has not replaced anything yet. Raises OSError."""
    draft, new = draft_of(path), new_of(path)
    useless = [_named(draft, ending) for ending in ("", *_BESIDE, _MARK, ".lock")]
    if not is_cut_short(path):
        useless += [new, _named(new, _MARK)]
    for file in useless:
        file.unlink(missing_ok=True)


def complete_draft(path: Path) -> None:
    """Name the closed draft the whole new store, durably. Raises StoreFull, OSError."""
    draft, new = draft_of(path), new_of(path)
    # SQLite reports no error of the checkpoint it makes when it closes, and keeps the WAL.
    if _named(draft, "-wal").exists() or not _named(draft, _MARK).exists():
        raise StoreFull("the new store could not be written whole; the old one is as it was")
    for ending in (_MARK, ""):
        _sync(_named(draft, ending))
    for ending in (_MARK, ""):
        _named(draft, ending).replace(_named(new, ending))
    _named(draft, ".lock").unlink(missing_ok=True)
    sync_folder(path.parent)


def put_in_place(path: Path) -> Path:
    """Set the files of a store aside and rename the new one; return the path set aside.

    It goes on where an earlier call was cut short. Raises OSError.
    """
    new = new_of(path)
    aside = _aside(path)
    if path.exists():
        path.replace(aside)
        # Before the WAL: a database without its WAL would be taken for all there is.
        sync_folder(path.parent)
    for ending in _old_endings(path):
        _named(path, ending).replace(_named(aside, ending))
    set_lost_ends_aside(path, aside)
    mark = _named(new, _MARK)
    if mark.exists():
        mark.replace(_named(path, _MARK))
    # Before the database: SQLite reads any WAL of its name into it.
    sync_folder(path.parent)
    new.replace(path)
    sync_folder(path.parent)
    return aside


def set_lost_ends_aside(path: Path, aside: Path | None = None) -> None:
    """Rename the WALs of `lost_ends`, so that no later repair reads them. Raises OSError."""
    aside = aside or _named(path, f".damaged-{_newest_number(path) + 1}")
    ends = lost_ends(path)
    for end in ends:
        end.replace(_named(aside, end.name.removeprefix(path.name)))
    if ends:
        sync_folder(path.parent)


def newest_aside(path: Path) -> Path | None:
    """Return the path under which the last repair set the database aside; None if it did not."""
    number = _newest_number(path)
    return _named(path, f".damaged-{number}") if number else None


def _aside(path: Path) -> Path:
    """Return the next name to set aside under; that of a repair that was cut short if it was."""
    newest = newest_aside(path) if is_cut_short(path) else None
    if newest is None or any(_named(newest, end).exists() for end in _old_endings(path)):
        return _named(path, f".damaged-{_newest_number(path) + 1}")
    return newest


def _old_endings(path: Path) -> list[str]:
    """Return the endings of files that still belong to the old store, beside its database."""
    # The mark of the new store has taken that name already if it is not beside `log.db.new`.
    is_marked = _named(new_of(path), _MARK).exists()
    endings = [*_BESIDE, *([_MARK] if is_marked else [])]
    return [ending for ending in endings if _named(path, ending).exists()]


def _newest_number(path: Path) -> int:
    numbers = [number for _, number in _numbered(path, r"\.damaged-(\d+)(?!\d).*")]
    return max(numbers, default=0)


def _numbered(path: Path, ending: str) -> list[tuple[str, int]]:
    """Return the files beside `path` of its name and this ending, with their numbers, sorted."""
    pattern = re.compile(re.escape(path.name) + ending)
    names = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    found = [(name, int(match[1])) for name in names if (match := pattern.fullmatch(name))]
    return sorted(found, key=lambda one: (one[1], one[0]))


def _named(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}{ending}")


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
