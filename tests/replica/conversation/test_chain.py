"""A chain of new entries: written once, at its slot, each call started once (DECISIONS D341)."""

import pytest

from replica.conversation import CallStarted, Chain, Conversation, LaneMoved, NewEntry, Slot
from replica.conversation.chain import (
    check_calls,
    check_slot,
    decode_new,
    encode_new,
    find_written,
)
from replica.ids import SALT_BYTES, EntryId, Track
from replica.log.body import Message, Speaker, ToolStarted
from replica.refusals import BodyMalformed
from tests.support.writers import Writer, said

ME = Writer(1, epoch=5)
SALT = bytes(range(SALT_BYTES))


def begun() -> Conversation:
    genesis = ME.genesis()
    held = Conversation(genesis.conversation)
    held.admit(genesis)
    return held


def test_a_new_entry_travels_unchanged():
    new = NewEntry(said("hello"), SALT)
    kind, content = encode_new(new)
    assert decode_new(kind, content) == new
    with pytest.raises(BodyMalformed):
        decode_new(99, content)


def test_a_chain_is_found_by_its_salt():
    held = begun()
    entry = ME.write(held.id, said("hello"), parents=[held.log.entries[EntryId(held.id)]])
    held.admit(entry)
    assert entry.body is not None
    salt = entry.body[:SALT_BYTES]
    assert find_written(held, ME.public, NewEntry(said("hello"), salt)) == entry
    assert find_written(held, ME.public, NewEntry(said("hello"), SALT)) is None
    assert find_written(held, Writer(2).public, NewEntry(said("hello"), salt)) is None


def test_a_slot_is_the_next_one_of_its_lane():
    held = begun()
    entry = ME.write(held.id, said("1"), parents=[held.log.entries[EntryId(held.id)]])
    held.admit(entry)
    lane = entry.header.lane
    assert lane.track == Track.CONVERSATION
    new = (NewEntry(said("2"), SALT),)
    check_slot(held, Chain(new, (entry.id,)), 5)
    check_slot(held, Chain(new, (entry.id,), slot=Slot(lane, 1)), 5)
    for slot, epoch in ((Slot(lane, 0), 5), (Slot(lane, 2), 5), (Slot(lane, 1), 6)):
        with pytest.raises(LaneMoved):
            check_slot(held, Chain(new, (entry.id,), slot=slot), epoch)


def test_a_call_started_before_is_refused():
    held = begun()
    opened_by = ME.write(held.id, said("calls"), parents=[held.log.entries[EntryId(held.id)]])
    held.admit(opened_by)

    def starting(call_id: str) -> Chain:
        body = Message(Speaker.TOOL, (ToolStarted(call_id, "effect"),))
        return Chain((NewEntry(body, SALT),), (opened_by.id,))

    check_calls(held, starting("a"))
    started = ME.write(held.id, starting("a").entries[0].body, parents=[opened_by])
    held.admit(started)
    with pytest.raises(CallStarted):
        check_calls(held, starting("a"))
    check_calls(held, starting("b"))
