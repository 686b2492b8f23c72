"""A repair that is cut short at any step is finished by the next one (DECISIONS D405)."""

import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from replica.conversation import Stored
from replica.errors import StoreError
from replica.io.store import transaction
from replica.io.store.readonly import open_read_only
from replica.io.store.salvage import repair_store
from replica.io.store.store import Store
from replica.log.entry import Entry
from replica.refusals import StoreCorrupt, StoreFull
from tests.replica.io.store.test_high_water import break_frame, killed_after
from tests.replica.io.store.test_salvage import break_both, held_in, log
from tests.support.files import file_size_limit, overwrite
from tests.support.stories import Story


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "log.db"


async def hub_left_by_a_kill(path: Path) -> list[Entry]:
    """Leave the files of a killed hub that lost the end of its WAL earlier; return its log."""
    story, after = Story(3), log(5, seed=8, size=900)
    story.grow(12)
    erased, early = log(4, seed=5), log(6, seed=6)
    await killed_after(path, [*erased, *early])
    break_frame(path, 3)
    async with await Store.open(path) as store:
        assert store.lost_count
        await store.append(story.entries)
        await store.put_meta("pin", b"the key of a hub")
        await store.tombstones.put([erased[0].conversation])
        await store.delete(erased[0].conversation)
        await store.put_meta("choice", b"in the WAL alone")
        await store.append(after)
        left = path.parent.with_name("left")
        shutil.copytree(path.parent, left)
    shutil.rmtree(path.parent)
    left.rename(path.parent)
    break_both(path)
    return [*story.entries, *early, *after]


class Steps:
    """The steps with which a repair changes files; `before` is called ahead of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: Callable[[], object] = lambda: None
        for owner, name in ((Path, "replace"), (Path, "unlink"), (os, "fsync")):
            monkeypatch.setattr(owner, name, self._stepped(getattr(owner, name)))
        monkeypatch.setattr(transaction, "transact", self._stepped(transaction.transact))

    def _stepped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **named: Any) -> Any:
            self.before()
            return call(*arguments, **named)

        return stepped


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


async def test_a_repair_that_is_killed_at_any_step_is_made_up_for(
    tmp_path: Path, path: Path, steps: Steps
) -> None:
    entries = await hub_left_by_a_kill(path)
    kills: list[Path] = []

    def keep_files() -> None:
        kills.append(tmp_path / "killed" / f"{len(kills)}" / "log.db")
        shutil.copytree(path.parent, kills[-1].parent)

    steps.before = keep_files
    done = await repair_store(path)
    steps.before = lambda: None
    held = await held_in(path)
    assert held.entries == {entry.id for entry in entries}
    assert held.values == (b"the key of a hub", b"in the WAL alone")
    assert (len(held.deleted), held.listed, held.lost) == (1, frozenset(), 0)
    assert sum(not killed.exists() for killed in kills) > 3
    for killed in kills:
        if not killed.exists():
            await require_refused(killed)
        is_done = names_of(killed) == names_of(path)
        again = await repair_store(killed)
        assert bool(again.why) != is_done
        assert is_done or (again.kept, again.lost) == (done.kept, done.lost), killed
        assert await held_in(killed) == held, killed
        assert not (await repair_store(killed)).why
        assert names_of(killed) == names_of(path)


async def require_refused(path: Path) -> None:
    before = names_of(path)
    for opening in (Store.open(path), anext(aiter(pages_of(path)))):
        with pytest.raises(StoreCorrupt, match="cut short") as refused:
            await opening
        assert "antiphon repair" in refused.value.next_step
    assert names_of(path) == before


async def pages_of(path: Path) -> AsyncIterator[list[Stored]]:
    async with open_read_only(path) as store:
        yield await store.conversations()


def names_of(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir() if file.suffix != ".lock")


def bytes_of(path: Path) -> dict[str, bytes]:
    files = [file for file in path.parent.iterdir() if file.suffix != ".lock"]
    return {file.name: file.read_bytes() for file in files}


async def test_a_repair_that_fails_at_any_step_leaves_all_for_the_next(
    tmp_path: Path, path: Path, steps: Steps
) -> None:
    entries = await hub_left_by_a_kill(path)
    number, is_done = 0, False
    while not is_done:
        number += 1
        failed = tmp_path / f"{number}" / "log.db"
        shutil.copytree(path.parent, failed.parent)
        left = number

        def fail_once() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError(errno.ENOSPC, "no space left")

        steps.before = fail_once
        try:
            await repair_store(failed)
            is_done = left > 0
        except StoreFull:
            pass
        steps.before = lambda: None
        await repair_store(failed)
        held = await held_in(failed)
        assert held.entries == {entry.id for entry in entries}, number
        assert held.values == (b"the key of a hub", b"in the WAL alone"), number
        assert len(held.deleted) == 1, number
    assert number > 20


async def test_a_repair_on_a_full_disk_leaves_the_old_files(path: Path) -> None:
    entries = log(60, size=900)
    async with await Store.open(path) as store:
        await store.append(entries)
    overwrite(path, 0, bytes(64))
    before = bytes_of(path)
    with file_size_limit(len(before[path.name]) // 2), pytest.raises(StoreError):
        await repair_store(path)
    assert bytes_of(path) == before
    assert (await repair_store(path)).kept == len(entries)


async def test_a_new_store_beside_a_damaged_one_is_made_again(path: Path) -> None:
    entries = log(8)
    await killed_after(path, entries)
    break_both(path)
    for name in ("log.db.draft", "log.db.draft-wal", "log.db.new", "log.db.new.mark"):
        path.with_name(name).write_bytes(b"left by a repair that was killed")
    assert (await repair_store(path)).kept == len(entries)
    assert not [name for name in names_of(path) if "draft" in name or "new" in name]


async def test_no_empty_store_takes_the_place_of_a_repaired_one(path: Path) -> None:
    await killed_after(path, log(3))
    break_both(path)
    await repair_store(path)
    for name in ("log.db", "log.db.mark"):
        path.with_name(name).unlink()
    with pytest.raises(StoreCorrupt, match="an earlier file") as refused:
        await Store.open(path)
    assert "antiphon repair" in refused.value.next_step
    assert "log.db" not in names_of(path)
