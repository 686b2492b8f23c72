"""The end of a store is missed when it is gone (LINK-62)."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from replica.errors import StoreError
from replica.io.store import high_water, schema, transaction
from replica.io.store.readonly import open_read_only
from replica.io.store.salvage import repair_store
from replica.io.store.store import Store
from replica.log.entry import Entry
from replica.refusals import StoreCorrupt
from tests.support.files import query
from tests.support.modes import bound_by_modes, mode
from tests.support.writers import log

FRAME_BYTES = 24 + 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "log.db"


async def killed_after(path: Path, entries: list[Entry]) -> None:
    """Leave the files of a process that appended entries one by one and was killed."""
    async with await Store.open(path) as store:
        for entry in entries:
            await store.append([entry])
        copy = path.parent.with_name("copy")
        shutil.copytree(path.parent, copy)
    shutil.rmtree(path.parent)
    copy.rename(path.parent)


def break_frame(path: Path, from_end: int) -> None:
    """Flip a bit in the content of a frame of the WAL, counted from its end."""
    wal = path.with_name(f"{path.name}-wal")
    data = bytearray(wal.read_bytes())
    data[len(data) - from_end * FRAME_BYTES + 2_000] ^= 1
    wal.write_bytes(data)


def break_header(path: Path) -> None:
    """Damage the page of the schema, whose other rows stay readable."""
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)


def empty(path: Path, *, is_removed: bool) -> None:
    path.unlink()
    if not is_removed:
        path.touch()


async def test_nothing_is_missed_of_a_sound_store(path: Path) -> None:
    entries = log(5)
    await killed_after(path, entries)
    for _ in range(2):
        async with open_read_only(path) as reading:
            assert reading.lost_count == 0
        async with await Store.open(path) as store:
            assert store.lost_count == 0


async def test_commits_behind_a_damaged_frame_are_missed(path: Path) -> None:
    entries = log(8)
    await killed_after(path, entries)
    break_frame(path, 4)
    async with open_read_only(path) as reading:
        here = len((await reading.load(entries[0].conversation)).entries)
        assert here < len(entries)
        assert reading.lost_count == len(entries) - here
    for _ in range(2):  # until it is repaired
        async with await Store.open(path) as store:
            assert store.lost_count == len(entries) - here
    done = await repair_store(path)
    assert (done.kept, done.lost) == (len(entries) - here, 0)
    async with await Store.open(path) as store:
        assert store.lost_count == 0
        assert (await store.load(entries[0].conversation)).entries == entries


@pytest.mark.parametrize("is_erased", [False, True])
async def test_tombstones_alone_behind_a_damaged_frame_are_missed(
    path: Path, is_erased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_TIMEOUT_S", 0.0)
    entries, others = log(3), log(2, seed=2)
    async with await Store.open(path) as store:
        await store.append([*entries, *others])
    async with await Store.open(path) as store:
        with closing(sqlite3.connect(path)) as reader:  # which keeps the WAL as it is
            reader.execute("BEGIN")
            reader.execute("SELECT 1 FROM entries").fetchall()
            await store.tombstones.put([entries[0].conversation])
            if is_erased:
                await store.delete(entries[0].conversation, finishes=True)
            left = path.parent.with_name("left") / path.name
            shutil.copytree(path.parent, left.parent)
    wal = left.with_name("log.db-wal")
    break_frame(left, wal.stat().st_size // FRAME_BYTES)
    async with open_read_only(left) as reading:
        assert reading.lost_count == 1
        assert await reading.tombstones.load() == {}
    async with await Store.open(left) as store:
        assert store.lost_count == 1
    done = await repair_store(left)
    assert (done.kept, done.lost, done.why) == (0, 0, "its end was lost")
    for _ in range(2):
        async with await Store.open(left) as store:
            assert store.lost_count == 0
            assert await store.tombstones.load() == {entries[0].conversation: False}
            await store.delete(entries[0].conversation)


async def test_a_tombstone_with_a_damaged_row_is_no_loss(path: Path) -> None:
    entries = log(2)
    async with await Store.open(path) as store:
        await store.append(entries)
        await store.tombstones.put([entries[0].conversation])
    query(path, "UPDATE tombstones SET conversation = zeroblob(32)")
    async with await Store.open(path) as store:
        assert store.lost_count == 0


async def test_losses_are_counted_beside_new_entries(path: Path) -> None:
    entries, others = log(6), log(3, seed=2)
    await killed_after(path, entries)
    path.with_name("log.db-wal").write_bytes(b"")
    # The tables were in the WAL too.
    async with await Store.open(path) as store:
        lost = store.lost_count
        await store.append(others)
    assert lost == len(entries)
    async with await Store.open(path) as store:
        assert store.lost_count == lost
    done = await repair_store(path)
    assert done.lost == lost
    async with await Store.open(path) as store:
        assert store.lost_count == 0
        assert (await store.load(others[0].conversation)).entries == others


@pytest.mark.parametrize("how", ["truncated", "removed"])
async def test_an_empty_file_is_no_new_store(path: Path, how: str) -> None:
    entries = log(3)
    async with await Store.open(path) as store:
        await store.append(entries)
    empty(path, is_removed=how == "removed")
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match="empty") as refused:
            await Store.open(path)
        assert "antiphon repair" in refused.value.next_step
        with pytest.raises(StoreCorrupt, match="empty"):
            async with open_read_only(path):
                pass
    done = await repair_store(path)
    assert (done.kept, done.lost) == (0, len(entries))
    async with await Store.open(path) as store:
        await store.append(entries)
        assert store.lost_count == 0


async def test_an_empty_file_is_no_new_store_though_all_was_deleted(path: Path) -> None:
    entries = log(3)
    async with await Store.open(path) as store:
        await store.append(entries)
        await store.delete(entries[0].conversation)
    empty(path, is_removed=False)
    with pytest.raises(StoreCorrupt, match="empty"):
        await Store.open(path)
    assert (await repair_store(path)).lost == 0


async def test_a_deleted_conversation_is_not_missed(path: Path) -> None:
    entries, others = log(3), log(2, seed=2)
    async with await Store.open(path) as store:
        await store.append(others)
        await store.append(entries)
        await store.delete(entries[0].conversation)
    async with await Store.open(path) as store:
        assert store.lost_count == 0
        await store.delete(others[0].conversation)
    async with await Store.open(path) as store:
        assert store.lost_count == 0


@pytest.mark.parametrize("is_hub", [False, True])
async def test_a_repair_does_not_miss_what_was_deleted(path: Path, is_hub: bool) -> None:
    entries, others = log(8), log(3, seed=2)
    async with await Store.open(path) as store:
        await store.append(entries)
        await store.append(others)
        if is_hub:
            await store.tombstones.put([entries[0].conversation])
        await store.delete(entries[0].conversation, finishes=is_hub)
    break_header(path)
    done = await repair_store(path)
    assert (done.kept, done.lost) == (len(others), 0)


async def test_losses_behind_a_deletion_are_those_alone(path: Path) -> None:
    early, entries, late = log(2, seed=2), log(8), log(3, seed=3)
    async with await Store.open(path) as store:
        await store.append(early)
        for entry in entries:
            await store.append([entry])
        await store.delete(entries[0].conversation)
        await store.append(late)
        left = path.parent.with_name("left") / path.name
        shutil.copytree(path.parent, left.parent)
    break_frame(left, 1)
    async with await Store.open(left) as store:
        assert store.lost_count == len(late)
        await store.append(late)
        again = left.parent.with_name("again") / path.name
        shutil.copytree(left.parent, again.parent)
    break_frame(again, 1)
    async with await Store.open(again) as store:
        assert store.lost_count == 2 * len(late)
    break_header(again)
    done = await repair_store(again)
    assert (done.kept, done.lost) == (len(early) + len(late), len(late))


async def test_a_deletion_that_is_killed_leaves_no_mark_ahead_of_the_store(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[Path] = []

    def step(patch: pytest.MonkeyPatch, owner: object, name: str) -> None:
        real = getattr(owner, name)

        def stepped(*arguments: object) -> None:
            for call in (lambda: None, lambda: real(*arguments)):
                call()
                killed.append(tmp_path / f"killed-{len(killed)}" / path.name)
                shutil.copytree(path.parent, killed[-1].parent)

        patch.setattr(owner, name, stepped)

    entries, others = log(8), log(3, seed=2)
    async with await Store.open(path) as store:
        await store.append(others)
        await store.append(entries)
        with monkeypatch.context() as patch:
            step(patch, high_water.MarkFile, "write")
            step(patch, transaction, "transact")
            await store.delete(entries[0].conversation)
    assert len(killed) == 4
    for files in killed:
        async with await Store.open(files) as store:
            held = sum(stored.entries for stored in await store.conversations())
            mark = high_water.read(files)
            assert mark is not None
            assert mark.stored <= held
            assert store.lost_count == 0
        break_header(files)
        assert (await repair_store(files)).lost == 0


async def test_a_deletion_that_the_disk_refuses_leaves_the_count(path: Path) -> None:
    entries = log(3)
    async with await Store.open(path) as store:
        await store.append(entries)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError):
                await store.delete(entries[0].conversation)
        mark = high_water.read(path)
        assert mark is not None
        assert mark.stored == len(entries)


@pytest.mark.parametrize("column", ["id", "conversation"])
async def test_a_damaged_key_of_the_last_row_is_no_loss(path: Path, column: str) -> None:
    entries = log(3)
    async with await Store.open(path) as store:
        for entry in entries:
            await store.append([entry])
    query(path, f"UPDATE entries SET {column} = zeroblob(32) WHERE id = ?", entries[-1].id)
    async with await Store.open(path) as store:
        assert store.lost_count == 0


@pytest.mark.parametrize("at", [0, 20, 60, 4096, 4100])
async def test_a_damaged_mark_makes_no_false_loss(path: Path, at: int) -> None:
    entries = log(5)
    async with await Store.open(path) as store:
        for entry in entries:
            await store.append([entry])
    mark = path.with_name("log.db.mark")
    data = bytearray(mark.read_bytes())
    data[at] ^= 1
    mark.write_bytes(data)
    before = high_water.read(path)
    assert before is not None
    async with await Store.open(path) as store:
        assert store.lost_count == 0


async def test_a_header_of_another_draft_is_damage_if_the_mark_knows_better(path: Path) -> None:
    entries = log(3)
    async with await Store.open(path) as store:
        await store.append(entries)
    query(path, f"PRAGMA user_version = {schema.number() + 1}")
    with pytest.raises(StoreCorrupt, match="damaged"):
        await Store.open(path)
    done = await repair_store(path)
    assert done.aside is not None
    assert (done.kept, done.lost) == (len(entries), 0)
    async with await Store.open(path) as store:
        assert (await store.load(entries[0].conversation)).entries == entries


async def test_what_several_processes_receive_is_counted_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = log(8)
    async with await Store.open(path) as store:
        rows = store._rows

        async def late(text: str, *parameters: object) -> list[tuple[Any, ...]]:
            await store._commit.write(())  # The writes that are queued come first.
            return await rows(text, *parameters)

        monkeypatch.setattr(store, "_rows", late)
        await asyncio.gather(*(store.append(entries, may_repeat=True) for _ in range(3)))
        await store.append(entries[4:], may_repeat=True)
    mark = high_water.read(path)
    assert mark is not None
    assert mark.stored == len(entries)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
async def test_a_mark_that_is_no_file_is_none_and_is_not_written(
    path: Path, make: Callable[[Path], None]
) -> None:
    entries = log(3)
    async with await Store.open(path) as store:
        await store.append(entries[:1])
    mark = path.with_name(f"{path.name}.mark")
    mark.unlink()
    make(mark)
    with capture_logs() as lines:
        async with await Store.open(path) as store:
            await store.append(entries[1:])
    assert {line["event"] for line in lines} == {"store mark not written"}
    assert all(str(mark) in line["detail"] for line in lines)
    with bound_by_modes(), mode(path.parent, 0o500):  # it is read from a copy
        async with open_read_only(path) as store:
            assert (await store.load(entries[0].conversation)).entries == entries
