"""Group commit: what becomes one statement, one transaction, one refusal."""

import asyncio
from pathlib import Path

import pytest

from replica.io.commit import JOINED_ROWS_MAX, Statement
from replica.io.store import Store
from replica.refusals import StoreFull
from tests.replica.io.test_store import log, wal_commits

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
