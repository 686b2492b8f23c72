"""Headers and bodies of the store, read apart: a log can be restored without what it says."""

from pathlib import Path

import pytest

from replica.conversation.conversation import Conversation
from replica.ids import EntryId
from replica.io.store.readonly import open_read_only
from replica.io.store.store import Store
from replica.log.damage import NOTHING_LOST
from replica.log.entry import Entry
from replica.log.kinds import CONTROL_KINDS
from tests.replica.io.store.test_store_damage import history, lost, without_body
from tests.support.files import query
from tests.support.writers import Writer, said


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "log.db"


def is_control(entry: Entry) -> bool:
    return entry.header.kind in CONTROL_KINDS


async def test_without_bodies_only_control_entries_have_theirs(path: Path) -> None:
    entries = history()
    async with await Store.open(path) as store:
        await store.append(entries)
        loaded = await store.load(entries[0].conversation, bodies=False)
    assert loaded.entries == [e if is_control(e) else without_body(e) for e in entries]
    assert loaded.lost == NOTHING_LOST
    assert loaded.apart == {e.id for e in entries if not is_control(e) and e.body is not None}
    assert loaded.apart


async def test_digest_and_membership_are_the_same_without_bodies(path: Path) -> None:
    entries = history()
    id_ = entries[0].conversation
    async with await Store.open(path) as store:
        await store.append(entries)
        bare = Conversation.restore(id_, (await store.load(id_, bodies=False)).entries)
    whole = Conversation.restore(id_, entries)
    assert bare.log.digest == whole.log.digest
    assert bare.log.membership == whole.log.membership


async def test_a_body_the_store_lacks_is_missing_and_one_it_holds_is_apart(path: Path) -> None:
    entries = history()
    id_ = entries[0].conversation
    bare, *others = [e for e in entries if not is_control(e)]
    async with await Store.open(path) as store:
        await store.append([without_body(e) if e is bare else e for e in entries])
        loaded = await store.load(id_, bodies=False)
        assert bare.id not in loaded.apart
        assert others[0].id in loaded.apart
        ids = [bare.id, others[0].id]
        assert await store.load_bodies(id_, ids) == {others[0].id: others[0].body}


async def test_bodies_come_by_id_however_many_are_asked_for(path: Path) -> None:
    writer = Writer(1)
    entries = [writer.genesis()]
    for number in range(1_200):
        entries.append(
            writer.write(entries[0].conversation, said(str(number)), parents=[entries[-1]])
        )
    async with await Store.open(path) as store:
        await store.append(entries)
        wanted = [*(entry.id for entry in entries), EntryId(bytes(32))]
        bodies = await store.load_bodies(entries[0].conversation, wanted)
        assert bodies == {entry.id: entry.body for entry in entries}
        assert await store.load_bodies(entries[0].conversation, ()) == {}


async def test_a_damaged_body_counts_as_missing_once_it_is_read(path: Path) -> None:
    entries = history()
    id_ = entries[0].conversation
    bad = next(e for e in entries if not is_control(e))
    async with await Store.open(path) as store:
        await store.append(entries)
    query(path, "UPDATE entries SET body = x'00' WHERE id = ?", bad.id)
    async with await Store.open(path) as store:
        assert bad.id in (await store.load(id_, bodies=False)).apart  # not looked at
        assert await store.load_bodies(id_, [bad.id]) == {}
        assert bad.id not in (await store.load(id_, bodies=False)).apart
        (row,) = await store.quarantined()
        assert (row.id, row.body_only) == (bad.id, True)


@pytest.mark.parametrize("column", ["header", "signature", "body"])
async def test_damage_of_a_control_entry_is_found_without_bodies_too(
    path: Path, column: str
) -> None:
    entries = history()
    id_ = entries[0].conversation
    bad = next(e for e in reversed(entries) if is_control(e))
    async with await Store.open(path) as store:
        await store.append(entries)
    query(path, f"UPDATE entries SET {column} = x'00' WHERE id = ?", bad.id)
    async with await Store.open(path) as store:
        loaded = await store.load(id_, bodies=False)
        assert loaded.lost == lost(bad)
        assert bad.id not in {entry.id for entry in loaded.entries}
        assert {e.id for e in loaded.entries if e.body is not None} == {
            e.id for e in entries if is_control(e) and e is not bad
        }
        assert store.quarantined_count == 1


async def test_headers_are_read_beside_the_process_that_holds_the_store(path: Path) -> None:
    entries = history()
    async with await Store.open(path) as store:
        await store.append(entries)
        async with open_read_only(path) as beside:
            loaded = await beside.load(entries[0].conversation, bodies=False)
    assert [entry.id for entry in loaded.entries] == [entry.id for entry in entries]
