"""Group commit: what becomes one statement, one transaction, one refusal."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from replica.errors import StoreError
from replica.io.store import commit, schema, small_rows
from replica.io.store import statements as sql
from replica.io.store.commit import GroupCommit
from replica.io.store.store import Store
from replica.io.store.transaction import JOINED_ROWS_MAX, Statement
from replica.log import Grant, Member, Role
from replica.refusals import StoreFull
from tests.replica.io.store.test_store import log, wal_commits
from tests.support.callers import until
from tests.support.files import file_size_limit, full_disk, query
from tests.support.writers import Writer

INSERT = "INSERT INTO t (a, b) VALUES (?, ?) ON CONFLICT (a) DO NOTHING"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "log.db"


def test_a_few_rows_of_an_insert_are_one_statement() -> None:
    joined = Statement(INSERT, [(1, "x"), (2, "y")]).joined()
    assert joined == (
        "INSERT INTO t (a, b) VALUES (?, ?), (?, ?) ON CONFLICT (a) DO NOTHING",
        [1, "x", 2, "y"],
    )


@pytest.mark.parametrize(
    "statement",
    [
        Statement("DELETE FROM t WHERE a = ?", [(1,)]),
        Statement("INSERT INTO t SELECT ?, ?", [(1, 2)]),
        Statement("INSERT INTO t VALUES (?, 7)", [(1,)]),
        Statement("DELETE FROM t"),
        Statement(INSERT, [(n, "x") for n in range(JOINED_ROWS_MAX + 1)]),
    ],
)
def test_all_else_is_run_as_it_is(statement: Statement) -> None:
    assert statement.joined() is None


@pytest.mark.parametrize("count", [2, JOINED_ROWS_MAX, JOINED_ROWS_MAX + 1])
async def test_appends_that_meet_are_one_transaction_however_many(path: Path, count: int) -> None:
    genesis, *entries = log(count + 1)
    async with await Store.open(path) as store:
        await store.append([genesis])
        before = wal_commits(path)
        await asyncio.gather(*(store.append([entry]) for entry in entries))
        assert wal_commits(path) - before == 1
        assert (await store.load(genesis.conversation)).entries == [genesis, *entries]


async def test_one_entry_appended_twice_at_once_is_stored_once(path: Path) -> None:
    entries = log(3)
    async with await Store.open(path) as store:
        await asyncio.gather(*(store.append([entry, entry]) for entry in entries))
        assert (await store.load(entries[0].conversation)).entries == entries


async def test_a_full_disk_refuses_all_rows_of_one_statement(path: Path) -> None:
    kept, big = log(3), log(40, seed=2, text="x" * 60_000)
    async with await Store.open(path, bytes_max=1_000_000) as store:
        await store.append(kept)
        appends = (store.append([entry]) for entry in big[1:])
        results = await asyncio.gather(*appends, return_exceptions=True)
        assert {type(result) for result in results} == {StoreFull}
        assert not await store.has(big[0].conversation)
        await store.append(log(1, seed=3))
        assert (await store.load(kept[0].conversation)).entries == kept


async def test_a_disk_that_stays_full_is_said_once_with_the_path_of_the_file(path: Path) -> None:
    big = log(40, text="x" * 60_000)
    async with await Store.open(path, bytes_max=1_000_000) as store:
        with capture_logs() as logs:
            for _ in range(3):
                with pytest.raises(StoreFull, match=f"{path}: database or disk is full"):
                    await store.append(big)
    assert [line["reason"] for line in logs] == [StoreFull.reason]


async def test_a_refused_transaction_leaves_no_statement_of_it(path: Path) -> None:
    # The kernel's refusal ends the transaction in SQLite, before its later statements.
    genesis, *entries = log(100, text="x" * 60_000)
    async with await Store.open(path) as store:
        with file_size_limit(3_000_000), pytest.raises(StoreError):
            await store.append([genesis, *entries])
        assert query(path, "SELECT count(*) FROM entries") == [(0,)]
        assert query(path, "SELECT count(*) FROM membership") == [(0,)]
        await store.append([genesis])
        assert (await store.load(genesis.conversation)).entries == [genesis]


async def test_a_grant_that_a_full_disk_refuses_is_not_listed(path: Path) -> None:
    writer = Writer(1)
    genesis = writer.genesis()
    members = (Member(Grant(Writer(number).public, Role.WRITER)) for number in range(2, 60))
    grants = [writer.write(genesis.conversation, body, parents=[genesis]) for body in members]
    async with await Store.open(path) as store:
        await store.append([genesis])
        stored = [genesis]
        async with full_disk(store):
            with pytest.raises(StoreFull):
                for grant in grants:
                    await store.append([grant])
                    stored.append(grant)
    async with await Store.open(path) as store:
        loaded = await store.load(genesis.conversation)
        assert (loaded.entries, loaded.lost.entries) == (stored, frozenset())


async def test_a_row_that_cant_be_set_aside_stays(path: Path) -> None:
    # Of a row to set aside, the copy comes first and the deletion second.
    path.parent.mkdir()
    commit = GroupCommit(await schema.connect_writer(path), path)
    await commit.write([Statement("CREATE TABLE t (a BLOB)"), Statement("CREATE TABLE u (a BLOB)")])
    await commit.write([Statement("INSERT INTO t VALUES (?)", [(bytes([n]),) for n in range(100)])])
    copies = [(bytes(60_000),) for _ in range(100)]
    with file_size_limit(3_000_000), pytest.raises(StoreError):
        await commit.write(
            [Statement("INSERT INTO u VALUES (?)", copies), Statement("DELETE FROM t")]
        )
    await commit.close()
    assert query(path, "SELECT count(*) FROM t") == [(100,)]
    assert query(path, "SELECT count(*) FROM u") == [(0,)]


async def test_what_was_deleted_leaves_the_wal_once_no_reader_is_in_the_way(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "BUSY_TIMEOUT_S", 0.0)
    monkeypatch.setattr(commit, "TRUNCATE_AGAIN_S", 0.01)
    entries = log(3)
    wal = path.with_name("log.db-wal")
    async with await Store.open(path) as store:
        await store.append(entries)
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT 1 FROM entries").fetchall()
            await store.delete(entries[0].conversation)
            assert entries[-1].signature in wal.read_bytes()
        await until(lambda: not wal.stat().st_size)


async def test_lazy_writes_are_durable_behind_the_close(path: Path) -> None:
    async with await Store.open(path) as store:
        row = small_rows.value_row("key", b"late")
        store._commit.write_later("key", Statement(sql.PUT_META, [row]))
        alone = asyncio.create_task(store.put_meta("other", b""))  # takes no lazy write along
        await asyncio.sleep(0)
        await store._commit.close()
        await alone
    async with await Store.open(path) as store:
        assert await store.get_meta("key") == b"late"


async def test_of_lazy_writes_the_newest_is_kept_though_an_older_one_failed(path: Path) -> None:
    async with await Store.open(path) as store:
        commit = store._commit

        def put_later(value: bytes) -> None:
            row = small_rows.value_row("key", value)
            commit.write_later("key", Statement(sql.PUT_META, [row]))

        async with full_disk(store):
            put_later(b"older" * 20_000)
            flushing = asyncio.create_task(commit.flush())
            await until(commit._turn.locked)
            put_later(b"newer")
            await flushing
        await commit.flush()
        assert await store.get_meta("key") == b"newer"


async def test_what_is_derived_is_refused_alone_where_it_does_not_fit(path: Path) -> None:
    async with await Store.open(path) as store, full_disk(store):
        large = Statement("INSERT INTO meta VALUES (?, ?, ?)", [("large", bytes(1 << 20), 0)])
        small = Statement("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", [("s", b"", 0)])
        derived, plain = await asyncio.gather(
            store._commit.write([large], is_derived=True),
            store._commit.write([small]),
            return_exceptions=True,
        )
        assert isinstance(derived, StoreFull)
        assert plain is None


async def test_what_begins_at_once_waits_for_no_turn_of_the_loop(path: Path) -> None:
    genesis, *entries = log(4)
    async with await Store.open(path) as store:
        await store.append([genesis])
        before = wal_commits(path)
        first, *rest = (store.append([entry], at_once=True) for entry in entries)
        await asyncio.gather(first, *rest)
        assert wal_commits(path) - before == 2  # those that come meanwhile share one
        assert (await store.load(genesis.conversation)).entries == [genesis, *entries]


async def test_what_begins_at_once_comes_behind_what_is_queued(path: Path) -> None:
    genesis, *entries = log(3)
    async with await Store.open(path) as store:
        await store.append([genesis])
        before = wal_commits(path)
        await asyncio.gather(store.append(entries[:1]), store.append(entries[1:], at_once=True))
        assert wal_commits(path) - before == 1


async def test_a_refusal_of_what_begins_at_once_is_its_callers(path: Path) -> None:
    kept, big = log(3), log(40, seed=2, text="x" * 60_000)
    async with await Store.open(path, bytes_max=1_000_000) as store:
        with pytest.raises(StoreFull):
            await store.append(big, at_once=True)
        await store.append(kept, at_once=True)
        assert (await store.load(kept[0].conversation)).entries == kept


async def test_a_caller_that_is_cancelled_leaves_the_turn_to_others(path: Path) -> None:
    first, second, third = log(1), log(1, seed=2), log(1, seed=3)
    async with await Store.open(path) as store:
        begun = asyncio.create_task(store.append(first, at_once=True))
        await until(store._commit._turn.locked)
        queued = asyncio.create_task(store.append(second))
        await until(lambda: bool(store._commit._taken))
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun
        await asyncio.gather(queued, store.append(third, at_once=True))
        for entries in (first, second, third):  # the transaction of the first was with SQLite
            assert (await store.load(entries[0].conversation)).entries == entries


async def test_a_writer_that_is_cancelled_keeps_what_waits_for_its_turn(path: Path) -> None:
    first, second = log(1), log(1, seed=2)
    async with await Store.open(path) as store:
        async with store._commit._turn:
            queued = asyncio.create_task(store.append(second))
            await until(lambda: bool(store._commit._taken))
            store._commit._worker._task.cancel()
            await until(store._commit._worker._task.done)
        await asyncio.gather(queued, store.append(first, at_once=True))
        assert (await store.load(second[0].conversation)).entries == second


async def test_a_store_is_closed_behind_what_began_at_once(path: Path) -> None:
    entries = log(2)
    store = await Store.open(path)
    begun = asyncio.create_task(store.append(entries, at_once=True))
    await until(store._commit._turn.locked)
    await store.close()
    await begun
    async with await Store.open(path) as again:
        assert (await again.load(entries[0].conversation)).entries == entries


async def test_an_error_that_nobody_foresaw_is_what_its_callers_are_told(path: Path) -> None:
    too_large = Statement("INSERT INTO meta VALUES (?, ?, ?)", [("large", b"", 1 << 70)])
    sound = Statement("INSERT INTO meta VALUES (?, ?, ?)", [("sound", b"", 0)])
    async with await Store.open(path) as store:
        begun = asyncio.create_task(store._commit.write([too_large], at_once=True))
        await until(store._commit._turn.locked)
        behind = asyncio.create_task(store._commit.write([sound]))
        await until(lambda: bool(store._commit._taken))
        with pytest.raises(OverflowError):
            await begun
        with pytest.raises(StoreError):
            await behind
        await store._commit.write([sound])
    assert query(path, "SELECT count(*) FROM meta WHERE key = 'sound'") == [(1,)]
