"""Damaged rows of the store: their report and their repair (spec/04-link §10)."""

import asyncio
import dataclasses
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from replica.conversation.conversation import Conversation
from replica.conversation.entry_store import Loaded, Stored
from replica.errors import StoreError
from replica.ids import ConversationId, EntryId
from replica.io.store.readonly import open_read_only
from replica.io.store.store import Store
from replica.log.damage import NOTHING_LOST
from replica.log.entry import Entry
from replica.log.kinds import CONTROL_KINDS, Kind
from tests.support.files import damage_root, flip_byte, query
from tests.support.stories import Story
from tests.support.writers import log, lost

FLIPS = 120


def history() -> list[Entry]:
    """Return a conversation with entries of every control kind, in (lamport, id) order."""
    grown = Story(3)
    grown.grow(60)
    return sorted(grown.entries, key=lambda entry: entry.order_key)


def newest(entries: list[Entry], kind: Kind) -> Entry:
    return next(e for e in reversed(entries) if e.header.kind == kind)


def without_body(entry: Entry) -> Entry:
    return dataclasses.replace(entry, body=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "log.db"


def replace_store(path: Path, data: bytes) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_bytes(data)


async def fill(path: Path, entries: list[Entry]) -> ConversationId:
    async with await Store.open(path) as store:
        await store.append(entries)
    return entries[0].conversation


# --- rows that fail their digest ----------------------------------------------------------


@pytest.mark.parametrize("part", ["header_bytes", "signature"])
async def test_an_entry_that_fails_its_digest_is_quarantined_until_it_comes_again(
    path: Path, part: str
) -> None:
    entries = log(9)
    bad = entries[5]
    conversation = bad.conversation
    async with await Store.open(path) as store:
        await store.append(entries)
    flip_byte(path, getattr(bad, part))
    async with await Store.open(path) as store:
        for _ in range(2):
            assert (await store.load(conversation)).entries == [e for e in entries if e is not bad]
        assert store.quarantined_count == 1
        [found] = await store.quarantined()
        assert (found.conversation, found.body_only) == (conversation, False)
        await store.append([bad])
        assert (await store.load(conversation)).entries == entries


def with_harmed_index(path: Path, conversation: ConversationId) -> Iterator[bytes]:
    """Yield the file with one wrong bit in one key of the index of entries, key by key."""
    data = path.read_bytes()
    ((page,),) = query(path, "SELECT rootpage FROM sqlite_schema WHERE name = 'entries_id'")
    assert isinstance(page, int)
    at = data.find(conversation, (page - 1) * 4096, page * 4096)
    while at >= 0:
        yield data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        at = data.find(conversation, at + 1, page * 4096)


async def test_a_damaged_index_lists_no_other_conversation_for_good(path: Path) -> None:
    """A search finds the damaged key, or misses it as it is out of order."""
    entries = log(9)
    conversation = await fill(path, entries)
    harmed = list(with_harmed_index(path, conversation))
    assert len(harmed) >= 9
    for data in harmed:
        replace_store(path, data)
        async with await Store.open(path) as store:
            for stored in await store.conversations():
                await store.load(stored.conversation)
            assert [stored.conversation for stored in await store.conversations()] == [conversation]
            assert (await store.load(conversation)).entries == entries
        assert query(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("key", ["conversation", "id"])
async def test_a_damaged_key_in_quarantine_is_no_entry_that_is_missing(
    path: Path, key: str
) -> None:
    entries = log(9)
    bad = entries[-1]
    conversation = await fill(path, entries)
    flip_byte(path, bad.header_bytes)
    async with await Store.open(path) as store:
        await store.load(conversation)
        await store.append([bad])
    changed = bytes([getattr(bad, key)[0] ^ 1]) + getattr(bad, key)[1:]
    query(path, f"UPDATE quarantine SET {key} = ?", changed)
    async with await Store.open(path) as store:
        assert not (await store.load(conversation)).lost
        assert [stored.conversation for stored in await store.conversations()] == [conversation]
        assert len(await store.quarantined()) == 1


async def test_a_row_quarantined_by_an_earlier_version_still_counts(path: Path) -> None:
    entries = log(9)
    conversation = await fill(path, entries)
    flip_byte(path, entries[-1].header_bytes)
    async with await Store.open(path) as store:
        await store.load(conversation)
    query(path, "UPDATE quarantine SET checksum = NULL")
    async with await Store.open(path) as store:
        assert (await store.load(conversation)).lost.entries == {entries[-1].id}


async def test_a_body_that_fails_its_digest_is_quarantined_until_it_comes_again(
    path: Path,
) -> None:
    entries = log(9)
    bad = entries[5]
    async with await Store.open(path) as store:
        await store.append(entries)
    assert bad.body is not None
    flip_byte(path, bad.body)
    async with await Store.open(path) as store:
        assert await store.load_bodies(bad.conversation, [bad.id]) == {}
        loaded = (await store.load(bad.conversation)).entries
        assert loaded == [without_body(e) if e is bad else e for e in entries]
        [found] = await store.quarantined()
        assert (found.id, found.body_only) == (bad.id, True)
        await store.append([bad])
        assert (await store.load(bad.conversation)).entries == entries


@pytest.mark.parametrize("occurrence", range(4))
@pytest.mark.parametrize("key", ["conversation", "id"])
async def test_a_damaged_key_hides_no_entry_for_good(path: Path, key: str, occurrence: int) -> None:
    # Rows, index and headers hold the keys. A flipped one can make SQLite's search skip
    # existing rows (of 61 it then finds 31), or make a row undeletable.
    entries = log(60)
    conversation = entries[0].conversation
    async with await Store.open(path) as store:
        await store.append(entries)
    flip_byte(path, getattr(entries[30], key), occurrence=occurrence)
    async with await Store.open(path) as store:
        loaded = (await store.load(conversation)).entries
        assert len(loaded) >= 60
        assert set(loaded) <= set(entries)
        await store.append(entries)
        assert (await store.load(conversation)).entries == entries
        assert [stored.entries for stored in await store.conversations()] == [61]


@pytest.mark.parametrize("kind", sorted(CONTROL_KINDS))
async def test_a_control_entry_whose_body_is_damaged_is_lost_as_a_whole(
    path: Path, kind: Kind
) -> None:
    entries = history()
    bad = newest(entries, kind)
    conversation = await fill(path, entries)
    assert bad.body is not None
    await asyncio.to_thread(flip_byte, path, bad.body)
    rest = [e for e in entries if e is not bad]
    async with await Store.open(path) as store:
        for _ in range(2):
            assert await store.load(conversation) == Loaded(rest, lost(bad))
        assert await store.load_bodies(conversation, [bad.id]) == {}
        [found] = await store.quarantined()
        assert (found.conversation, found.id, found.body_only) == (conversation, bad.id, False)
        await store.append([bad])
        assert await store.load(conversation) == Loaded(entries, NOTHING_LOST)


async def test_a_repaired_entry_may_be_damaged_again(path: Path) -> None:
    entries = history()
    bad = newest(entries, Kind.MEMBER)
    conversation = await fill(path, entries)
    for time in range(1, 4):
        query(path, "UPDATE entries SET body = x'00' WHERE id = ?", bad.id)
        async with await Store.open(path) as store:
            assert (await store.load(conversation)).lost == lost(bad)
            assert len(await store.quarantined()) == time
            await store.append([bad])
            assert await store.load(conversation) == Loaded(entries, NOTHING_LOST)


async def test_damage_in_several_rows_is_reported_together(path: Path) -> None:
    entries = history()
    conversation = await fill(path, entries)
    kinds = (Kind.GENESIS, Kind.MEMBER, Kind.REQUEST, Kind.SEAL, Kind.MESSAGE)
    bad = [newest(entries, kind) for kind in kinds]
    for entry, column in zip(bad, ("body", "header", "signature", "body", "header"), strict=True):
        query(path, f"UPDATE entries SET {column} = x'00' WHERE id = ?", entry.id)
    async with await Store.open(path) as store:
        loaded = await store.load(conversation)
        assert loaded.lost == lost(*bad)
        assert loaded.entries == [e for e in entries if e not in bad]
        await store.append(bad[2:])
        assert (await store.load(conversation)).lost == lost(*bad[:2])
        await store.append(bad)
        assert await store.load(conversation) == Loaded(entries, NOTHING_LOST)


@pytest.mark.parametrize("value", ["'text'", "7", "x'00'", "CAST(x'ff' AS TEXT)"])
@pytest.mark.parametrize("column", ["header", "signature", "body"])
async def test_a_column_of_another_type_is_quarantined(path: Path, column: str, value: str) -> None:
    entries = log(2)
    bad = entries[1]
    conversation = await fill(path, entries)
    query(path, f"UPDATE entries SET {column} = {value} WHERE id = ?", bad.id)
    survivor = [without_body(bad)] if column == "body" else []
    async with await Store.open(path) as store:
        for _ in range(2):
            loaded = (await store.load(conversation)).entries
            assert loaded == [entries[0], *survivor, entries[2]]
        assert store.quarantined_count == 1
    assert query(path, "SELECT count(*) FROM entries") == [(2 + len(survivor),)]


async def test_bad_bytes_move_to_quarantine_as_they_are(path: Path) -> None:
    entries = log(1)
    conversation = await fill(path, entries)
    query(path, "UPDATE entries SET body = x'0102' WHERE id = ?", entries[0].id)
    async with await Store.open(path) as store:
        await store.load(conversation)
    columns = "conversation, id, header, signature, body"
    assert query(path, f"SELECT {columns} FROM quarantine") == [
        (conversation, entries[0].id, entries[0].header_bytes, entries[0].signature, b"\1\2")
    ]


async def test_a_read_only_store_reports_losses_and_changes_nothing(path: Path) -> None:
    entries = history()
    bad = newest(entries, Kind.MEMBER)
    conversation = await fill(path, entries)
    query(path, "UPDATE entries SET body = x'00' WHERE id = ?", bad.id)
    async with open_read_only(path) as store:
        for _ in range(2):
            loaded = await store.load(conversation)
            assert loaded == Loaded([e for e in entries if e is not bad], lost(bad))
    assert query(path, "SELECT count(*) FROM quarantine") == [(0,)]


# --- sound entries with damaged keys ------------------------------------------------------


@pytest.mark.parametrize("value", ["'text'", "7", "x'00'"])
async def test_a_sound_entry_survives_a_damaged_checksum(path: Path, value: str) -> None:
    entries = log(2)
    conversation = await fill(path, entries)
    query(path, f"UPDATE entries SET checksum = {value} WHERE id = ?", entries[1].id)
    async with await Store.open(path) as store:
        assert await store.load(conversation) == Loaded(entries, NOTHING_LOST)
        assert store.quarantined_count == 0
        flaw = "SELECT count(*) FROM entries WHERE typeof(checksum) IS NOT 'integer'"
        assert query(path, flaw) == [(0,)]
        assert await store.load(conversation) == Loaded(entries, NOTHING_LOST)


async def test_a_row_under_another_conversation_goes_back_to_its_own(path: Path) -> None:
    entries, other = log(2), log(0, seed=2)
    async with await Store.open(path) as store:
        await store.append([*entries, *other])
        move = "UPDATE entries SET conversation = ? WHERE id = ?"
        query(path, move, other[0].conversation, entries[2].id)
        assert await store.load(other[0].conversation) == Loaded(other, NOTHING_LOST)
        assert await store.load(entries[0].conversation) == Loaded(entries, NOTHING_LOST)
        assert store.quarantined_count == 0


async def test_an_entry_received_again_replaces_a_damaged_row(path: Path) -> None:
    entries = log(3)
    async with await Store.open(path) as store:
        await store.append(entries)
        for column in ("signature", "checksum", "body"):
            query(path, f"UPDATE entries SET {column} = x'00' WHERE id = ?", entries[2].id)
            await store.append([entries[2]])
            assert (await store.load(entries[0].conversation)).entries == entries
        assert store.quarantined_count == 0


# --- vanished rows ------------------------------------------------------------------------


async def test_a_vanished_row_is_reported_and_recorded_once(path: Path) -> None:
    entries = history()
    conversation = await fill(path, entries)
    gone = newest(entries, Kind.MEMBER)
    followed = entries[len(entries) // 2]
    for entry in (gone, followed):
        query(path, "DELETE FROM entries WHERE id = ?", entry.id)
    for _ in range(2):
        async with await Store.open(path) as store:
            loaded = await store.load(conversation)
            assert loaded.lost.membership == {gone.id}
            assert loaded.lost.entries == {gone.id, followed.id}
            assert {found.id for found in await store.quarantined()} == {gone.id, followed.id}
            assert len(await store.quarantined()) == 2
            assert store._repairs.has_rebuilt is (store.quarantined_count == 2)
    async with await Store.open(path) as store:
        await store.append([gone, followed])
        assert await store.load(conversation) == Loaded(entries, NOTHING_LOST)


@pytest.mark.parametrize("key", ["conversation", "id"])
async def test_no_flipped_key_hides_the_newest_revocation(path: Path, key: str) -> None:
    # Nothing follows it, so nothing else would show that it is missing.
    entries = history()
    last = newest(entries, Kind.MEMBER)
    conversation = await fill(path, entries)
    sound = await asyncio.to_thread(path.read_bytes)
    # The rows and the index hold the key, the list of membership entries, and later headers.
    occurrences = range(sound.count(getattr(last, key)))
    assert len(occurrences) > 1
    for occurrence in occurrences:
        await asyncio.to_thread(path.write_bytes, sound)
        await asyncio.to_thread(flip_byte, path, getattr(last, key), occurrence=occurrence)
        async with await Store.open(path) as store:
            loaded = await store.load(conversation)
            assert last in loaded.entries or last.id in loaded.lost.membership
            await store.append(entries)
            assert await store.load(conversation) == Loaded(entries, NOTHING_LOST)


async def test_no_flipped_bit_changes_membership_or_hides_a_loss(path: Path) -> None:
    entries = history()
    conversation = await fill(path, entries)
    whole = Conversation.restore(conversation, entries)
    sound = await asyncio.to_thread(path.read_bytes)
    chance = random.Random(5)
    used = [at for at, byte in enumerate(sound) if byte]
    counts = Counter[str]()
    for at in chance.sample(used, FLIPS):
        damaged = bytearray(sound)
        damaged[at] ^= 1 << chance.randrange(8)
        await asyncio.to_thread(replace_store, path, damaged)
        try:
            async with await Store.open(path) as store:
                loaded = await store.load(conversation)
                held = Conversation.restore(conversation, loaded.entries, loaded.lost)
                same = held.log.membership == whole.log.membership
                assert held.is_blocked or same
                assert held.damage or held.log.digest == whole.log.digest
                counts["blocked" if held.is_blocked else "damaged" if held.damage else "whole"] += 1
                await store.append(entries)
                assert await store.load(conversation) == Loaded(entries, NOTHING_LOST)
                assert conversation in [s.conversation for s in await store.conversations()]
        except StoreError as error:
            counts[error.reason] += 1  # the file itself is damaged: nothing is served at all
    assert counts["blocked"] > 5
    assert counts["damaged"] > 5
    assert counts["whole"] > 5


async def test_a_damaged_list_of_membership_entries_is_written_anew(path: Path) -> None:
    entries = history()
    conversation = await fill(path, entries)
    query(path, "UPDATE membership SET checksum = checksum + 1")
    async with await Store.open(path) as store:
        assert await store.load(conversation) == Loaded(entries, NOTHING_LOST)
    query(path, "DELETE FROM entries WHERE id = ?", entries[0].id)
    async with await Store.open(path) as store:
        assert (await store.load(conversation)).lost == lost(entries[0])


# --- conversations ------------------------------------------------------------------------


async def test_a_conversation_wholly_in_quarantine_is_listed_and_deleted(
    path: Path,
) -> None:
    [genesis], kept = log(0), log(2, seed=2)
    await fill(path, [genesis, *kept])
    query(path, "UPDATE entries SET body = x'00' WHERE id = ?", genesis.id)
    async with await Store.open(path) as store:
        loaded = await store.load(genesis.conversation)
        assert loaded == Loaded([], lost(genesis))
        assert loaded
        listed = {s.conversation: s.entries for s in await store.conversations()}
        assert listed == {genesis.conversation: 0, kept[0].conversation: 3}
        assert Stored(genesis.conversation, 0, 0, 0, None) in await store.conversations()
        assert await store.has(genesis.conversation)
        await store.delete(genesis.conversation)
        assert not await store.has(genesis.conversation)
        assert not await store.load(genesis.conversation)
        assert [s.conversation for s in await store.conversations()] == [kept[0].conversation]
        assert await store.quarantined() == []
    for table in ("entries", "quarantine", "membership"):
        named = f"SELECT count(*) FROM {table} WHERE conversation = ?"
        assert query(path, named, genesis.conversation) == [(0,)]


async def test_a_damaged_list_of_membership_entries_hides_no_conversation(path: Path) -> None:
    conversation = await fill(path, log(2))
    damage_root(path, "membership")
    async with await Store.open(path) as store:
        (stored,) = await store.conversations()
    assert (stored.conversation, stored.entries, stored.membership) == (conversation, 3, None)


async def test_an_unknown_conversation_lost_nothing(path: Path) -> None:
    async with await Store.open(path) as store:
        loaded = await store.load(ConversationId(bytes(32)))
        assert loaded == Loaded([], NOTHING_LOST)
        assert not loaded
        assert await store.load_bodies(ConversationId(bytes(32)), [EntryId(bytes(32))]) == {}
