"""The acks of a hub: the newest position per lane."""

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, Position
from replica.link.acks import Acks, acked_by
from replica.link.events import EntriesAcked, EntriesAdmitted, LinkClosed
from replica.log.entry import Entry
from tests.support.writers import Writer, log

ID = ConversationId(Writer(1).genesis().id)


def at(entry: Entry) -> Position:
    return Position(entry.header.lane, entry.header.seq, entry.id)


def unacked(acks: Acks, entries: list[Entry]) -> list[Entry]:
    """The entries not known to be held, in order."""
    missing = acks.unacked(Conversation.restore(ID, entries))
    return [entry for entry in entries if entry.id in missing]


def test_an_ack_covers_its_lane_ancestors_and_nothing_else():
    entries, acks = log(4), Acks()
    assert unacked(acks, entries) == entries
    acks.note(ID, [at(entries[2])])
    assert unacked(acks, entries) == [entries[0], *entries[3:]]
    acks.note(ID, [at(entries[3]), at(entries[0])])
    assert unacked(acks, entries) == entries[4:]


def test_the_later_of_two_positions_in_one_lane_counts():
    entries, acks = log(3), Acks()
    acks.note(ID, [at(entries[3]), at(entries[1]), at(entries[0])])
    assert unacked(acks, entries) == []


def test_a_hub_that_lost_its_log_is_known_to_hold_only_its_new_acks():
    entries, acks = log(3), Acks()
    acks.note(ID, [at(entries[0]), at(entries[3])])
    acks.note(ID, [at(entries[0]), at(entries[1])])
    assert unacked(acks, entries) == entries[2:]


def test_an_empty_set_of_acks_is_known():
    acks = Acks()
    assert ID not in acks
    acks.load(ID, ())
    assert ID in acks
    acks.forget(ID)
    assert ID not in acks


def test_entries_a_hub_sends_count_as_acked():
    genesis, first, second = log(2)
    events = (
        EntriesAcked(ID, (at(genesis),)),
        EntriesAdmitted(ID, (first, second)),
        LinkClosed(),
    )
    assert acked_by(events) == {ID: (at(genesis), at(first), at(second))}
