"""The end of a store, compared with its mark when the store is opened (spec/04-link §10)."""

import shutil
import sqlite3
from collections.abc import Set
from pathlib import Path

from replica.io.files import replacing, typed_errors
from replica.io.process import get_logger
from replica.io.store import high_water, store_files
from replica.io.store.connection import Connection
from replica.io.store.high_water import Group, Mark, MarkFile
from replica.log import entry_id
from replica.refusals import StoreCorrupt

_HOLDS = """
SELECT 1 FROM entries WHERE conversation = ?1 AND id = ?2
UNION ALL SELECT 1 FROM quarantine WHERE conversation = ?1 AND id = ?2 LIMIT 1
"""
_ALL = "SELECT header, id FROM entries UNION ALL SELECT header, id FROM quarantine"
_DELETED = "SELECT conversation FROM tombstones UNION SELECT conversation FROM tombstones_again"

_log = get_logger()


@typed_errors()
def require_content(path: Path) -> None:
    """Refuse what is no file, and a gone or empty file of an old store.

    Raises StoreCorrupt, and StoreError if that can't be told.
    """
    if path.exists() and not path.is_file():
        raise StoreCorrupt(f"{path} is not a regular file")
    if path.exists() and path.stat().st_size:
        return
    if store_files.is_cut_short(path):
        raise StoreCorrupt(f"{path} is missing: a repair of it was cut short")
    mark = high_water.read(path)
    if mark is not None and mark.number:  # it was opened before, whatever was deleted since
        held = mark.stored + mark.lost
        raise StoreCorrupt(f"{path} is empty, though it was a store of {held:,} entries")
    if store_files.was_replaced(path):
        raise StoreCorrupt(f"{path} is empty, though an earlier file of that name was repaired")


async def note_loss(path: Path, file: MarkFile, reader: Connection) -> None:
    """Note in the mark how many of the last writes are gone, and keep the WAL they were in.

    Called before the store is written, which overwrites the WAL.
    """
    mark = await compared(reader, file.mark)
    if mark.lost == file.mark.lost:
        return
    _log.error("the end of a store was lost", path=str(path), count=mark.lost - file.mark.lost)
    wal = path.with_name(f"{path.name}-wal")
    if wal.exists() and wal.stat().st_size:
        with replacing(store_files.next_lost_end(path)) as copy, wal.open("rb") as lost:
            shutil.copyfileobj(lost, copy)
    file.write(mark)


async def compared(reader: Connection, mark: Mark) -> Mark:
    """Return the mark, with the groups that are no longer stored counted as lost."""
    if not mark.groups:
        return mark
    try:
        return await reader.run(lambda connection: _compared(connection, mark))
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
            return mark.after_loss(0)  # the tables themselves are gone
        _log.warning("the end of a store was not checked", detail=str(error))
        return mark  # a damaged page, which reads report


def _compared(reader: sqlite3.Connection, mark: Mark) -> Mark:
    newest = mark.groups[-1]
    if reader.execute(_HOLDS, (newest.conversation, newest.id)).fetchone():
        return mark
    # The table of these is as new as they are: a store of three steps has none.
    is_hub = any(group.is_tombstone for group in mark.groups)
    deleted = {one for (one,) in reader.execute(_DELETED)} if is_hub else set()
    if newest.conversation in deleted:
        return mark
    # The row, or the index that finds it, may be damaged instead of gone.
    rows = reader.execute(_ALL).fetchall()
    ids = {id_ for _, id_ in rows}
    ids |= {entry_id(header) for header, _ in rows if isinstance(header, bytes)}
    reached = len(mark.groups)
    while reached and not _is_held(mark.groups[reached - 1], ids, deleted):
        reached -= 1
    return mark if reached == len(mark.groups) else mark.after_loss(reached)


def _is_held(group: Group, ids: Set[object], deleted: Set[object]) -> bool:
    return group.id in ids or group.conversation in deleted
