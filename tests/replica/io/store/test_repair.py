"""Repairs of the store: counted, written once, and never a failure of a read."""

from pathlib import Path

import pytest

from replica.errors import StoreError
from replica.io.store import schema
from replica.io.store.commit import GroupCommit
from replica.io.store.repair import Repairs
from replica.io.store.rows import BadRow, examine
from replica.io.store.store import Store
from tests.support.files import query
from tests.support.writers import Writer, said


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """Return a store with a genesis and one message, closed."""
    path = tmp_path / "log.db"
    writer = Writer(1)
    genesis = writer.genesis()
    message = writer.write(genesis.conversation, said("x"), parents=[genesis])
    async with await Store.open(path) as store:
        await store.append([genesis, message])
    return path


def rows(path: Path) -> list[tuple[object, ...]]:
    text = "SELECT 0, rowid, id, header, signature, checksum, body FROM entries ORDER BY rowid"
    return [tuple(row) for row in query(path, text)]


async def test_only_the_body_of_a_row_is_set_aside_where_the_rest_is_sound(path: Path) -> None:
    _, row = rows(path)
    conversation = Writer(1).genesis().conversation
    commit = GroupCommit(await schema.connect_writer(path), path)
    repairs = Repairs(commit)
    await repairs.set_aside(conversation, [BadRow(row, row[2], body_only=True, why="a test")])
    await commit.close()
    assert repairs.quarantined_count == 1
    assert rows(path)[1] == (*row[:-1], None)
    assert query(path, "SELECT id, body, why FROM quarantine") == [(row[2], row[-1], "a test")]


async def test_a_row_that_was_repaired_meanwhile_stays(path: Path) -> None:
    before = rows(path)
    conversation = Writer(1).genesis().conversation
    commit = GroupCommit(await schema.connect_writer(path), path)
    stale = (*before[1][:-1], b"as it was read")
    await Repairs(commit).set_aside(conversation, [BadRow(stale, stale[2], False, "a test")])
    await commit.close()
    assert rows(path) == before


async def test_a_repair_that_cant_be_written_is_counted_and_reading_continues(path: Path) -> None:
    conversation = Writer(1).genesis().conversation
    commit = GroupCommit(await schema.connect_writer(path), path)
    await commit.close()
    repairs = Repairs(commit)
    await repairs.repair(conversation, examine(conversation, rows(path)[1:]))  # no genesis
    assert repairs.quarantined_count == 1
    with pytest.raises(StoreError):
        await repairs.rebuild_index()
