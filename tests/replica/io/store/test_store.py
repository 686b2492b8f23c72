import asyncio
import dataclasses
import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from replica.conversation.entry_store import Stored
from replica.errors import StoreError
from replica.ids import ConversationId, Lane, Position, Track
from replica.io.store import commit, erasing
from replica.io.store import statements as sql
from replica.io.store.store import Store
from replica.io.store.transaction import Statement
from replica.log.entry import Entry
from replica.refusals import StoreFull, StoreLocked
from tests.support.callers import until
from tests.support.files import full_disk, query, wal_commits
from tests.support.modes import bound_by_modes, mode
from tests.support.writers import Writer, log, said


def without_body(entry: Entry) -> Entry:
    return dataclasses.replace(entry, body=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "log.db"


async def test_appended_entries_are_stored_after_reopening(path: Path) -> None:
    entries = log(20)
    async with await Store.open(path) as store:
        await store.append(entries)
    async with await Store.open(path) as store:
        assert (await store.load(entries[0].conversation)).entries == entries


def begin_anew(path: Path) -> None:
    path.parent.mkdir()
    path.touch()


def put_back(path: Path, moved: Path) -> None:
    if path.parent.exists():
        shutil.rmtree(path.parent)
    moved.rename(path.parent)


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_nothing_is_durable_in_a_file_that_was_moved_away(
    path: Path, is_replaced: bool
) -> None:
    entries, moved = log(3), path.parent.with_name("moved")
    async with await Store.open(path) as store:
        await store.append(entries[:1])
        path.parent.rename(moved)
        if is_replaced:
            begin_anew(path)
        with pytest.raises(StoreError, match="moved or removed"):
            await store.append(entries[1:2])
        put_back(path, moved)
        await store.append(entries[1:])
    async with await Store.open(path) as store:
        assert (await store.load(entries[0].conversation)).entries == entries


async def test_a_file_that_can_not_be_looked_at_takes_nothing_until_it_can(path: Path) -> None:
    entries = log(3)
    with bound_by_modes():
        async with await Store.open(path) as store:
            await store.append(entries[:1])
            with mode(path.parent, 0):
                with pytest.raises(StoreError, match=str(path)) as caught:
                    await store.append(entries[1:])
                assert caught.value.reason == StoreError.reason
            assert (await store.load(entries[0].conversation)).entries == entries[:1]
            await store.append(entries[1:])
    async with await Store.open(path) as store:
        assert (await store.load(entries[0].conversation)).entries == entries


async def test_entries_load_in_lamport_then_id_order_whatever_the_append_order(path: Path) -> None:
    first, second = Writer(1), Writer(2)
    genesis = first.genesis()
    conversation = genesis.conversation
    twins = [w.write(conversation, said("both"), parents=[genesis]) for w in (first, second)]
    async with await Store.open(path) as store:
        await store.append([*reversed(twins), genesis])
        loaded = (await store.load(conversation)).entries
    assert loaded == [genesis, *sorted(twins, key=lambda e: e.id)]


async def test_appending_an_entry_again_changes_nothing(path: Path) -> None:
    entries = log(3)
    conversation = entries[0].conversation
    async with await Store.open(path) as store:
        await store.append(entries)
        await store.append([*entries, *entries])
        assert (await store.load(conversation)).entries == entries
        size = sum(entry.size_bytes for entry in entries)
        checksum = sum(zlib.crc32(entry.signature) for entry in entries)
        of_members = zlib.crc32(entries[0].signature)
        stored = Stored(conversation, 4, size, checksum, (1, of_members))
        assert await store.conversations() == [stored]


async def test_a_missing_body_is_filled_and_a_present_one_kept(path: Path) -> None:
    entries = log(1)
    conversation = entries[0].conversation
    async with await Store.open(path) as store:
        await store.append([entries[0], without_body(entries[1])])
        assert (await store.load(conversation)).entries[1].body is None
        await store.append([entries[1]])
        assert (await store.load(conversation)).entries == entries
        await store.append([without_body(entries[1])])
        assert (await store.load(conversation)).entries == entries


async def test_an_empty_append_changes_nothing(path: Path) -> None:
    async with await Store.open(path) as store:
        await store.append([])
        assert await store.conversations() == []


async def test_an_append_returns_only_after_its_own_commit(path: Path) -> None:
    entries = log(50)
    async with await Store.open(path) as store:
        before = wal_commits(path)
        for count, entry in enumerate(entries, 1):
            await store.append([entry])
            assert wal_commits(path) == before + count
            assert query(path, "SELECT 1 FROM entries WHERE id = ?", entry.id) == [(1,)]


async def test_concurrent_callers_share_one_transaction(path: Path) -> None:
    entries = log(200)
    async with await Store.open(path) as store:
        before = wal_commits(path)
        await asyncio.gather(*(store.append([entry]) for entry in entries))
        assert wal_commits(path) - before == 1
        assert (await store.load(entries[0].conversation)).entries == entries


async def test_concurrent_appends_and_loads_of_several_conversations(path: Path) -> None:
    logs = [log(60, seed=seed) for seed in range(8)]

    async def append_all(store: Store, entries: list[Entry]) -> None:
        for at in range(0, len(entries), 3):
            await store.append(entries[at : at + 3])
            loaded = (await store.load(entries[0].conversation)).entries
            assert loaded == entries[: at + 3]

    async with await Store.open(path) as store:
        await asyncio.gather(*(append_all(store, entries) for entries in logs))
        held = await store.conversations()
    assert {stored.conversation: stored.entries for stored in held} == {
        entries[0].conversation: 61 for entries in logs
    }


async def test_a_cancelled_caller_does_not_cancel_others(path: Path) -> None:
    entries = log(2)
    async with await Store.open(path) as store:
        tasks = [asyncio.create_task(store.append([entry])) for entry in entries]
        await asyncio.sleep(0)  # Both wait for the writer now.
        tasks[1].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert results[0] is None
        assert isinstance(results[1], asyncio.CancelledError)
        assert results[2] is None
        await store.append(entries)
        assert (await store.load(entries[0].conversation)).entries == entries


async def test_closing_writes_the_queue_and_then_refuses(path: Path) -> None:
    entries = log(5)
    store = await Store.open(path)
    tasks = [asyncio.create_task(store.append([entry])) for entry in entries]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*tasks)
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.append(entries)
    with pytest.raises(StoreError, match="closed"):
        await store.load(entries[0].conversation)
    async with await Store.open(path) as store:
        assert (await store.load(entries[0].conversation)).entries == entries


async def test_a_store_has_one_holder_at_a_time(path: Path) -> None:
    async with await Store.open(path):
        with pytest.raises(StoreLocked):
            await Store.open(path)
    async with await Store.open(path):
        pass


async def test_store_files_are_private(path: Path) -> None:
    def modes() -> dict[str, int]:
        files = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
        return files | {".": path.parent.stat().st_mode & 0o777}

    async with await Store.open(path) as store:
        await store.append(log(1))
        names = ("log.db", "log.db-wal", "log.db-shm", "log.db.lock", "log.db.mark")
        assert modes() == {".": 0o700, **dict.fromkeys(names, 0o600)}


async def test_a_full_disk_refuses_the_whole_batch_and_nothing_else(path: Path) -> None:
    kept, big = log(5), log(100, seed=2, text="x" * 20_000)
    async with await Store.open(path, bytes_max=1_000_000) as store:
        await store.append(kept)
        appends = (store.append([entry]) for entry in big)
        results = await asyncio.gather(*appends, return_exceptions=True)
        assert {type(result) for result in results} == {StoreFull}
        assert not await store.has(big[0].conversation)
        assert (await store.load(kept[0].conversation)).entries == kept
        await store.append(log(1, seed=3))


async def test_a_full_store_works_again_once_space_is_freed(path: Path) -> None:
    big, more = log(100, text="x" * 20_000), log(20, seed=2, text="x" * 20_000)
    acked = []
    async with await Store.open(path, bytes_max=1_000_000) as store:
        with pytest.raises(StoreFull):
            for entry in big:
                await store.append([entry])
                acked.append(entry)
        assert acked
        assert (await store.load(big[0].conversation)).entries == acked
        await store.delete(big[0].conversation)
        await store.append(more)
        assert (await store.load(more[0].conversation)).entries == more


async def test_deleting_leaves_no_trace_of_a_conversation(path: Path) -> None:
    secret, kept = log(30, text="the secret word"), log(3, seed=2)
    conversation, peer = secret[0].conversation, Writer(3).public

    def traces() -> list[str]:
        words = (b"the secret word", conversation)
        files = [file for file in path.parent.iterdir() if file.suffix != ".db-shm"]
        return [file.name for file in files if any(w in file.read_bytes() for w in words)]

    async with await Store.open(path) as store:
        await store.append([*secret, *kept])
        store.save_acks(conversation, peer, [position(secret[4])], now_ms=5)
        query(path, "UPDATE entries SET body = x'00' WHERE id = ?", secret[9].id)
        await store.load(conversation)
        assert await store.quarantined()
        assert traces()
        await store.delete(conversation)
        assert traces() == []
        assert not await store.has(conversation)
        assert (await store.load(conversation)).entries == []
        assert await store.quarantined() == []
        assert await store.load_acks(conversation, peer) == ((), None)
        assert (await store.load(kept[0].conversation)).entries == kept


async def test_a_long_deleted_conversation_is_erased_in_steps_beside_other_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages are overwritten, for which every append would wait."""
    monkeypatch.setattr(erasing, "ROWS_MAX", 16)
    gone, kept = log(100), log(10, seed=2)
    async with await Store.open(path) as store:
        await store.append([*gone, kept[0]])
        await store.tombstones.put([gone[0].conversation])
        write, waiting, left = store._commit.write, kept[1:], []

        async def between(statements: Sequence[Statement], **options: int) -> None:
            if statements[0].sql == sql.DELETE_ROW and waiting:
                await store.append([waiting.pop(0)])
                stored = {one.conversation: one.entries for one in await store.conversations()}
                left.append(stored[gone[0].conversation])
            await write(statements, **options)

        monkeypatch.setattr(store._commit, "write", between)
        await store.delete(gone[0].conversation, finishes=True)
        assert left == list(range(len(gone), 0, -16))
        monkeypatch.undo()
        await store.append(waiting)
        assert not await store.has(gone[0].conversation)
        assert (await store.load(kept[0].conversation)).entries == kept
    async with await Store.open(path) as store:
        assert store.lost_count == 0
        assert await store.tombstones.load() == {gone[0].conversation: True}


async def test_a_step_that_the_disk_refuses_leaves_the_mark_at_what_is_stored(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "ROWS_MAX", 16)
    gone = log(100)
    async with await Store.open(path) as store:
        await store.append(gone)
        await store.tombstones.put([gone[0].conversation])
        before, write = store._mark.mark.stored, store._commit.write
        steps: list[Sequence[Statement]] = []

        async def refused(statements: Sequence[Statement], *, truncate: bool = False) -> None:
            steps.extend([statements] * bool(statements))
            if len(steps) > 3:
                raise StoreFull
            await write(statements, truncate=truncate)

        monkeypatch.setattr(store._commit, "write", refused)
        with pytest.raises(StoreFull):
            await store.delete(gone[0].conversation, finishes=True)
        assert store._mark.mark.stored == before - 3 * 16
        monkeypatch.undo()
        await store.delete(gone[0].conversation, finishes=True)
        assert store._mark.mark.stored == before - len(gone)


def position(entry: Entry) -> Position:
    return Position(entry.header.lane, entry.header.seq, entry.id)


async def test_acks_keep_the_newest_position_of_each_lane(path: Path) -> None:
    entries = log(3)
    conversation, peer = entries[0].conversation, Writer(2).public
    far = Lane(peer, 2**64 - 1, Track.DOCUMENT)
    async with await Store.open(path) as store:
        first = [position(entries[1]), Position(far, 2**53 - 1, entries[0].id)]
        store.save_acks(conversation, peer, first, now_ms=10)
        store.save_acks(conversation, peer, [position(entries[3])], now_ms=20)
        expected = {position(entries[3]), Position(far, 2**53 - 1, entries[0].id)}
        positions, last_ack_ms = await store.load_acks(conversation, peer)
        assert (set(positions), last_ack_ms) == (expected, 20)
    async with await Store.open(path) as store:
        positions, last_ack_ms = await store.load_acks(conversation, peer)
        assert (set(positions), last_ack_ms) == (expected, 20)
        assert await store.load_acks(conversation, Writer(3).public) == ((), None)


async def test_acks_are_written_with_the_next_append_of_several_statements(path: Path) -> None:
    entries = log(1)  # the genesis is listed too
    peer = Writer(2).public
    async with await Store.open(path) as store:
        before = wal_commits(path)
        store.save_acks(entries[0].conversation, peer, [position(entries[1])], now_ms=1)
        await store.append(entries)
        assert wal_commits(path) == before + 1
        assert query(path, "SELECT count(*) FROM acks") == [(1,)]


async def test_acks_do_not_make_a_transaction_of_one_statement(path: Path) -> None:
    genesis, *entries = log(2)
    peer = Writer(2).public
    async with await Store.open(path) as store:
        await store.append([genesis])
        store.save_acks(genesis.conversation, peer, [position(genesis)], now_ms=1)
        await store.append(entries)
        assert query(path, "SELECT count(*) FROM acks") == [(0,)]
    assert query(path, "SELECT count(*) FROM acks") == [(1,)]


async def test_acks_that_were_due_are_written_with_any_append(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "LAZY_DELAY_S", 0.0)
    genesis, first, second = log(2)
    peer = Writer(2).public
    async with await Store.open(path) as store:
        await store.append([genesis])
        store.save_acks(genesis.conversation, peer, [position(genesis)], now_ms=1)
        await store.append([first])
        await store.append([second])
        assert query(path, "SELECT count(*) FROM acks") == [(1,)]


async def test_acks_reach_the_disk_without_an_append(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "LAZY_DELAY_S", 0.0)
    entries = log(0)
    async with await Store.open(path) as store:
        peer = Writer(2).public
        store.save_acks(entries[0].conversation, peer, [position(entries[0])], now_ms=1)
        await until(lambda: query(path, "SELECT 1 FROM acks") != [])


async def test_acks_that_find_a_full_disk_are_written_once_space_is_freed(path: Path) -> None:
    entries = log(1)
    conversation, peer = entries[0].conversation, Writer(2).public
    lanes = [Lane(peer, epoch, Track.CONVERSATION) for epoch in range(1, 500)]
    fresh = [Position(lane, 0, entries[1].id) for lane in lanes]
    async with await Store.open(path) as store:
        await store.append(entries)
        store.save_acks(conversation, peer, [position(entries[1])], now_ms=1)
        assert await store.load_acks(conversation, peer) == ((position(entries[1]),), 1)
        async with full_disk(store):
            store.save_acks(conversation, peer, fresh, now_ms=2)
            # Older acks only cause additional comparisons; that is no failure.
            assert await store.load_acks(conversation, peer) == ((position(entries[1]),), 1)
        positions, _ = await store.load_acks(conversation, peer)
        assert set(positions) == {position(entries[1]), *fresh}


async def test_small_values_are_kept(path: Path) -> None:
    async with await Store.open(path) as store:
        assert await store.get_meta("peer/hub.example") is None
        await store.put_meta("peer/hub.example", b"one")
        await store.put_meta("peer/hub.example", b"two")
    async with await Store.open(path) as store:
        assert await store.get_meta("peer/hub.example") == b"two"


async def test_an_unknown_conversation_is_empty(path: Path) -> None:
    async with await Store.open(path) as store:
        nothing = ConversationId(bytes(32))
        assert (await store.load(nothing)).entries == []
        assert not await store.has(nothing)
        await store.delete(nothing)


async def test_a_broken_page_of_acks_does_not_prevent_appends(path: Path) -> None:
    entries = log(3)
    peer = Writer(2).public
    async with await Store.open(path):
        pass
    [(page,)] = query(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'acks'")
    [(size,)] = query(path, "PRAGMA page_size")
    assert isinstance(page, int)
    assert isinstance(size, int)
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    async with await Store.open(path) as store:
        store.save_acks(entries[0].conversation, peer, [position(entries[1])], now_ms=1)
        await store.append(entries[:2])
        await store.append(entries[2:])
        assert (await store.load(entries[0].conversation)).entries == entries
