"""What a hub is known to hold is read from its saved acks, one newest position per lane."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, Position
from replica.io.acks import Acks
from replica.io.store import Store
from replica.log.entry import Entry
from tests.support.writers import Writer, said

HUB, OTHER_HUB = Writer(98).public, Writer(99).public
AUTHOR = Writer(1)
GENESIS = AUTHOR.genesis()
ID = ConversationId(GENESIS.id)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "store") as opened:
        yield opened


def written(count: int) -> list[Entry]:
    """A genesis and messages, each after the one before."""
    writer = Writer(1)
    entries = [writer.genesis()]
    for number in range(count - 1):
        entries.append(writer.write(ID, said(str(number)), parents=entries[-1:]))
    return entries


def place(entry: Entry) -> Position:
    return Position(entry.header.lane, entry.header.seq, entry.id)


def owed(acks: Acks, entries: list[Entry]) -> list[Entry]:
    """The entries not known to be held, in order."""
    missing = acks.unacked(Conversation.restore(ID, entries))
    return [entry for entry in entries if entry.id in missing]


async def test_an_ack_covers_what_precedes_it_in_its_lane_and_nothing_else(store: Store):
    entries = written(5)
    acks = Acks(store, HUB)
    assert owed(acks, entries) == entries
    await acks.note(ID, [place(entries[2])])
    assert owed(acks, entries) == [entries[0], *entries[3:]]
    await acks.note(ID, [place(entries[3]), place(entries[0])])
    assert owed(acks, entries) == entries[4:]


async def test_of_two_places_in_one_lane_the_later_counts_whatever_their_order(store: Store):
    entries = written(4)
    acks = Acks(store, HUB)
    await acks.note(ID, [place(entries[3]), place(entries[1]), place(entries[0])])
    assert owed(acks, entries) == []


async def test_a_hub_that_begins_again_is_known_to_hold_no_more_than_it_says(store: Store):
    entries = written(4)
    acks = Acks(store, HUB)
    await acks.note(ID, [place(entries[0]), place(entries[3])])
    await acks.note(ID, [place(entries[0]), place(entries[1])])
    assert owed(acks, entries) == entries[2:]


async def test_what_is_saved_is_what_is_read_again(store: Store):
    entries = written(4)
    before = Acks(store, HUB)
    await before.note(ID, [place(entries[0]), place(entries[2])])
    after = Acks(store, HUB)
    assert after.acked_ms(ID) is None
    await after.load(ID)
    assert owed(after, entries) == owed(before, entries) == entries[3:]
    assert after.acked_ms(ID) == before.acked_ms(ID) is not None


async def test_one_hub_does_not_answer_for_another(store: Store):
    entries = written(3)
    for hub, entry in ((HUB, entries[2]), (OTHER_HUB, entries[1])):
        await Acks(store, hub).note(ID, [place(entries[0]), place(entry)])
    stranger = await Acks.of_hub(store, "127.0.0.1:1")
    await stranger.load(ID)
    assert owed(stranger, entries) == entries
    await stranger.meet(OTHER_HUB)
    assert owed(stranger, entries) == entries[2:]
    await stranger.meet(HUB)
    assert owed(stranger, entries) == []


async def test_without_a_hub_an_ack_of_any_hub_counts(store: Store):
    entries = written(3)
    for hub, entry in ((HUB, entries[0]), (OTHER_HUB, entries[1])):
        await Acks(store, hub).note(ID, [place(entry)])
    acks = await Acks.of_hub(store, None)
    await acks.load(ID)
    assert owed(acks, entries) == entries[2:]


async def test_a_deleted_conversation_is_forgotten(store: Store):
    entries = written(2)
    acks = Acks(store, HUB)
    await acks.note(ID, [place(entry) for entry in entries])
    acks.forget(ID)
    await store.delete(ID)
    await acks.load(ID)
    assert owed(acks, entries) == entries
