"""The saved acks of a hub: the newest position per lane."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, Position
from replica.io.driver.saved_acks import SavedAcks
from replica.io.store.store import Store
from replica.log.entry import Entry
from tests.support.writers import Writer, log

HUB, OTHER_HUB = Writer(98).public, Writer(99).public
AUTHOR = Writer(1)
GENESIS = AUTHOR.genesis()
ID = ConversationId(GENESIS.id)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "store") as opened:
        yield opened


def at(entry: Entry) -> Position:
    return Position(entry.header.lane, entry.header.seq, entry.id)


async def unacked(acks: SavedAcks, entries: list[Entry]) -> list[Entry]:
    """The entries not known to be held, in order."""
    missing = await acks.unacked(Conversation.restore(ID, entries))
    return [entry for entry in entries if entry.id in missing]


async def test_saved_acks_are_read_again(store: Store):
    entries = log(3)
    before = SavedAcks(store, HUB)
    before.save(ID, [at(entries[0]), at(entries[2]), at(entries[1])])
    after = SavedAcks(store, HUB)
    assert after.acked_ms(ID) is None
    assert await unacked(after, entries) == entries[3:]
    assert after.acked_ms(ID) == before.acked_ms(ID) is not None


async def test_acks_of_one_hub_do_not_count_for_another(store: Store):
    entries = log(2)
    for hub, entry in ((HUB, entries[2]), (OTHER_HUB, entries[1])):
        SavedAcks(store, hub).save(ID, [at(entries[0]), at(entry)])
    stranger = await SavedAcks.of_hub(store, "127.0.0.1:1")
    assert await unacked(stranger, entries) == entries
    stranger.hub = OTHER_HUB
    assert await unacked(stranger, entries) == entries[2:]
    stranger.hub = HUB
    assert await unacked(stranger, entries) == []


async def test_without_a_hub_an_ack_of_any_hub_counts(store: Store):
    entries = log(2)
    for hub, entry in ((HUB, entries[0]), (OTHER_HUB, entries[1])):
        SavedAcks(store, hub).save(ID, [at(entry)])
    assert await unacked(await SavedAcks.of_hub(store, None), entries) == entries[2:]


async def test_the_acks_of_a_deleted_conversation_are_deleted_with_it(store: Store):
    entries = log(1)
    acks = SavedAcks(store, HUB)
    acks.save(ID, [at(entry) for entry in entries])
    await store.delete(ID)
    assert await unacked(acks, entries) == entries


async def test_acks_are_those_of_the_hub_that_was_connected_while_they_were_read(store: Store):
    entries = log(2)
    for hub, entry in ((HUB, entries[2]), (OTHER_HUB, entries[1])):
        SavedAcks(store, hub).save(ID, [at(entries[0]), at(entry)])
    await store.load_acks(ID, HUB)  # they are written now
    acks = SavedAcks(store, HUB)
    reading = asyncio.create_task(unacked(acks, entries))
    await asyncio.sleep(0)  # it has begun
    acks.hub = OTHER_HUB
    assert await reading == entries[2:]
