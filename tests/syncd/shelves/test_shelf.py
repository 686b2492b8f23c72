"""A hub's shelf: a bound on conversations in memory, and records of the others."""

import pytest

from replica.conversation.conversation import Conversation
from replica.conversation.entry_store import Stored
from replica.ids import ConversationId, EntryId
from replica.link.messages import ListingItem
from replica.log.body import Grant, Member, Revocation, Role
from replica.log.damage import Lost
from replica.log.entry import Entry
from syncd.links.listing import item_of, list_of
from syncd.shelves.shelf import HubShelf, Known
from tests.support.call_count import calls
from tests.support.writers import Writer, said

ADA, BOB, EVE = (Writer(number) for number in (1, 2, 3))
UNKNOWN = ConversationId(b"?" * 32)


def conversation(number: int) -> Conversation:
    """Return a conversation of Ada's with Bob as reader."""
    ada = Writer(1, epoch=number + 1)
    genesis = ada.genesis()
    change = Member(Grant(BOB.public, Role.READER))
    grant = ada.write(genesis.conversation, change, parents=[genesis])
    return Conversation.restore(genesis.conversation, [genesis, grant])


@pytest.fixture
def held() -> list[Conversation]:
    return [conversation(number) for number in range(5)]


def filled(held: list[Conversation], in_memory_max: int = 2) -> HubShelf:
    shelf = HubShelf(in_memory_max)
    for one in held:
        shelf.load(one)
    return shelf


# --- the record -------------------------------------------------------------------


def test_the_record_holds_the_members(held: list[Conversation]):
    members, log = frozenset({ADA.public, BOB.public}), held[0].log
    sums = log.checksums
    stored = Stored(held[0].id, len(log), log.size_bytes, sums.log, sums.membership)
    assert Known.of(held[0]) == Known(members, held[0].creator, stored=stored)


def test_a_record_has_the_sums_of_its_log_where_the_store_can_not_tell_them(
    held: list[Conversation],
):
    log = held[0].log
    known = Known.of(held[0], Stored(held[0].id, len(log), 7, log.checksums.log, None))
    assert known is not None
    assert known.stored is not None
    assert (known.stored.size_bytes, known.stored.membership) == (7, log.checksums.membership)
    assert log.checksums.membership[0] == 2


def test_a_record_says_who_is_a_member_of_a_log_that_goes_on():
    stored = Stored(UNKNOWN, 9, 900, 90, (3, 30))
    members = frozenset({ADA.public, BOB.public})
    known = Known(members, ADA.public, frozenset({BOB.public}), stored)
    assert known.for_log(stored) is known
    later = known.for_log(Stored(UNKNOWN, 10, 950, 95, (3, 30)))
    assert later is not None
    assert (later.members, later.awaiting, later.stored) == (members, members, None)
    assert later.for_log(stored) is None
    for other in ((4, 35), (4, 30), (3, 35), None):
        assert known.for_log(Stored(UNKNOWN, 10, 950, 95, other)) is None, "they may be others"
    assert known.for_log(Stored(UNKNOWN, 9, 900, 90, None)) is None, "entries may be missing"


def test_the_record_of_a_damaged_conversation_is_of_no_log(held: list[Conversation]):
    entries = held[0].log.entries.values()
    lost = Lost(entries=frozenset({EntryId(bytes(32))}))
    known = Known.of(Conversation.restore(held[0].id, entries, lost))
    assert known is not None
    assert known.stored is None


def test_a_revoked_key_is_no_member_of_the_record():
    writer = Writer(1)
    entries: list[Entry] = [writer.genesis()]
    for change in (Grant(BOB.public, Role.READER), Revocation(BOB.public)):
        entries.append(writer.write(entries[0].conversation, Member(change), parents=entries[-1:]))
    known = Known.of(Conversation.restore(entries[0].conversation, entries))
    assert known is not None
    assert known.members == {ADA.public}


def test_a_blocked_conversation_has_no_known_members():
    assert Known.of(Conversation.restore(UNKNOWN, (), Lost(is_unreadable=True))) is None


# --- eviction -------------------------------------------------------------------


def test_the_least_recently_used_go_first(held: list[Conversation]):
    shelf = filled(held)
    shelf.touch(held[0].id)
    assert shelf.evict(frozenset().__contains__) == tuple(one.id for one in held[1:4])
    assert list(shelf.values()) == [held[4], held[0]]


def test_needed_conversations_stay_however_many_there_are(held: list[Conversation]):
    shelf = filled(held)
    assert shelf.evict({one.id for one in held}.__contains__) == ()
    assert shelf.evict({one.id for one in held[:3]}.__contains__) == (held[3].id, held[4].id)


def test_a_conversation_with_pending_entries_stays(held: list[Conversation]):
    writer = Writer(1, epoch=1)
    genesis = writer.genesis()
    first = writer.write(genesis.conversation, said("first"), parents=[genesis])
    with_pending = Conversation.restore(genesis.conversation, [genesis])
    with_pending.admit(writer.write(genesis.conversation, said("second"), parents=[first]))
    shelf = filled([with_pending, *held[1:3]], in_memory_max=1)
    shelf.evict(frozenset().__contains__)
    assert list(shelf) == [with_pending.id]


def test_it_is_over_its_bound_when_something_was_added_since_the_last_eviction(
    held: list[Conversation],
):
    shelf = filled(held[:2])
    assert not shelf.has_capacity
    assert not shelf.is_over_bound
    shelf.load(held[2])
    assert shelf.is_over_bound
    shelf.evict({one.id for one in held}.__contains__)
    assert not shelf.is_over_bound  # nothing can be evicted; a search per frame would be costly
    shelf.load(held[3])
    assert shelf.is_over_bound


# --- loading ----------------------------------------------------------------------


def test_a_members_message_loads_an_evicted_conversation_and_a_strangers_does_not(
    held: list[Conversation],
):
    shelf = filled(held)
    (gone, *_) = shelf.evict(frozenset().__contains__)
    assert shelf.needs_load(gone, ADA.public)
    assert shelf.needs_load(gone, BOB.public)
    assert not shelf.needs_load(gone, EVE.public)
    assert not shelf.needs_load(held[4].id, ADA.public)


def test_a_peer_that_sends_the_genesis_may_prove_to_be_a_member(held: list[Conversation]):
    shelf = filled(held)
    (gone, *_) = shelf.evict(frozenset().__contains__)
    assert shelf.needs_load(gone, EVE.public, brings_genesis=True)
    assert not shelf.needs_load(UNKNOWN, EVE.public, brings_genesis=True)


def test_an_invalidated_conversation_is_loaded_for_anyone(held: list[Conversation]):
    shelf = filled(held[:1])
    shelf.invalidate(held[0].id)
    assert held[0].id not in shelf
    assert shelf.needs_load(held[0].id, EVE.public)
    shelf.load(held[0])
    assert not shelf.needs_load(held[0].id, ADA.public)


def test_a_new_conversation_that_came_to_nothing_hides_no_stored_one(held: list[Conversation]):
    shelf = filled(held)
    (gone, *_) = shelf.evict(frozenset().__contains__)
    shelf.add(Conversation(gone))
    shelf.remove(gone)
    assert shelf.needs_load(gone, ADA.public)


def test_a_forgotten_conversation_is_loaded_for_nobody(held: list[Conversation]):
    shelf = filled(held)
    (gone, *_) = shelf.evict(frozenset().__contains__)
    for one in (gone, held[4].id):
        shelf.forget(one)
        assert one not in shelf
        assert not shelf.needs_load(one, ADA.public)


# --- listing ----------------------------------------------------------------------


def test_all_conversations_of_a_member_are_listed_wherever_they_are(held: list[Conversation]):
    shelf = filled(held)
    shelf.evict(frozenset().__contains__)
    assert len(shelf) == 2
    assert list(list_of(shelf, BOB.public)) == sorted(one.id for one in held)
    for one in held:
        item = ListingItem(one.id, one.creator)
        assert (item_of(shelf, one.id, BOB.public), item_of(shelf, one.id, EVE.public)) == (
            item,
            None,
        )
    assert list(list_of(shelf, EVE.public)) == []


def test_an_invalidated_conversation_is_listed_to_nobody(held: list[Conversation]):
    shelf = filled(held[:2])
    shelf.invalidate(held[0].id)
    assert list(list_of(shelf, BOB.public)) == [held[1].id]
    assert item_of(shelf, held[0].id, BOB.public) is None


def test_a_listing_costs_nothing_for_the_stored_conversations_of_others() -> None:
    def work(others: int) -> int:
        shelf = HubShelf(1)
        for number in range(others):
            genesis = Writer(100 + number).genesis()
            shelf.index(Conversation.restore(genesis.conversation, [genesis]))
        shelf.index(conversation(0))
        return calls(lambda: list_of(shelf, BOB.public))

    assert work(40) == work(4)


def test_a_listing_follows_the_records(held: list[Conversation]) -> None:
    shelf = filled(held)
    for one in held:
        shelf.index(one)
    assert len(list_of(shelf, BOB.public)) == 5
    shelf.invalidate(held[0].id)
    shelf.forget(held[1].id)
    shelf.load(held[2])
    shelf.index(held[3])
    assert list(list_of(shelf, BOB.public)) == sorted(one.id for one in held[2:])
    shelf.forget(held[2].id)
    shelf.forget(held[3].id)
    shelf.forget(held[4].id)
    assert list(list_of(shelf, BOB.public)) == []
