"""What a hub is known to hold: one newest position per lane."""

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, Position
from replica.link.acks import Acks, acked_by
from replica.link.events import EntriesAcked, EntriesAdmitted, LinkClosed
from replica.log.entry import Entry
from tests.support.writers import Writer, said

ID = ConversationId(Writer(1).genesis().id)


def written(count: int) -> list[Entry]:
    """A genesis and messages, each after the one before."""
    writer = Writer(1)
    entries = [writer.genesis()]
    for number in range(count - 1):
        entries.append(writer.write(ID, said(str(number)), parents=entries[-1:]))
    return entries


def at(entry: Entry) -> Position:
    return Position(entry.header.lane, entry.header.seq, entry.id)


def owed(acks: Acks, entries: list[Entry]) -> list[Entry]:
    """The entries not known to be held, in order."""
    missing = acks.unacked(Conversation.restore(ID, entries))
    return [entry for entry in entries if entry.id in missing]


def test_an_ack_covers_what_precedes_it_in_its_lane_and_nothing_else():
    entries, acks = written(5), Acks()
    assert owed(acks, entries) == entries
    acks.note(ID, [at(entries[2])])
    assert owed(acks, entries) == [entries[0], *entries[3:]]
    acks.note(ID, [at(entries[3]), at(entries[0])])
    assert owed(acks, entries) == entries[4:]


def test_of_two_positions_in_one_lane_the_later_counts_whatever_their_order():
    entries, acks = written(4), Acks()
    acks.note(ID, [at(entries[3]), at(entries[1]), at(entries[0])])
    assert owed(acks, entries) == []


def test_a_hub_that_begins_again_is_known_to_hold_no_more_than_it_says():
    entries, acks = written(4), Acks()
    acks.note(ID, [at(entries[0]), at(entries[3])])
    acks.note(ID, [at(entries[0]), at(entries[1])])
    assert owed(acks, entries) == entries[2:]


def test_knowing_that_nothing_is_acked_is_knowing_something():
    acks = Acks()
    assert ID not in acks
    acks.load(ID, ())
    assert ID in acks
    acks.forget(ID)
    assert ID not in acks


def test_what_a_hub_sends_it_holds_as_it_holds_what_it_acks():
    genesis, first, second = written(3)
    events = (
        EntriesAcked(ID, (at(genesis),)),
        EntriesAdmitted(ID, (first, second)),
        LinkClosed(),
    )
    assert acked_by(events) == {ID: (at(genesis), at(first), at(second))}
