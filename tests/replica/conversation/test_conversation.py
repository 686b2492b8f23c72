"""One conversation in memory: restored, extended, and judged by what its store lost."""

import gc
from dataclasses import replace
from weakref import ref

import pytest

from replica.conversation.conversation import Conversation, updates_of
from replica.conversation.drafts import DraftStream
from replica.document import EMPTY_UPDATE
from replica.ids import Lane, Track
from replica.log.admission import Admitted, Duplicate, Pending
from replica.log.body import DocumentUpdate, Grant, Join, Member, Revocation, Role
from replica.log.damage import Lost
from replica.log.entry import Entry
from replica.order.tail import frontier, tail
from replica.refusals import ConversationDamaged
from tests.replica.order.turn import Turn
from tests.support.stories import Story
from tests.support.writers import Writer, said

ADA, BOB = Writer(1), Writer(2)


def line(count: int, writer: Writer | None = None) -> list[Entry]:
    """Return a genesis and messages that follow one another."""
    author = writer or Writer(1)
    entries = [author.genesis()]
    for number in range(count):
        text = said(str(number))
        entries.append(author.write(entries[0].conversation, text, parents=entries[-1:]))
    return entries


def lane_of(entry: Entry) -> Lane:
    return entry.header.lane


def test_it_is_restored_from_entries_in_any_order() -> None:
    entries = line(3)
    held = Conversation.restore(entries[0].conversation, reversed(entries))
    assert list(held.log.entries.values()) == entries
    assert not held.is_blocked


def test_what_follows_a_lost_entry_waits_until_it_comes_again() -> None:
    entries = line(3)
    lost = Lost(frozenset({entries[1].id}))
    kept = [entries[0], *entries[2:]]
    held = Conversation.restore(entries[0].conversation, kept, lost)
    assert list(held.log.pending) == [e.id for e in entries[2:]]
    assert held.find(entries[3].id) == entries[3]
    assert held.find(entries[1].id) is None
    verdict = held.admit(entries[1])
    assert isinstance(verdict, Admitted)
    assert verdict.entries == tuple(entries[1:])
    assert verdict.unstored == (entries[1],), "the others are in the store already"


def test_a_lost_membership_entry_blocks_until_it_is_back() -> None:
    genesis = ADA.restored().genesis()
    grant = Writer(1).write(
        genesis.conversation, Member(Grant(BOB.public, Role.WRITER)), parents=[genesis]
    )
    lost = Lost(membership=frozenset({grant.id}))
    held = Conversation.restore(genesis.conversation, [genesis], lost)
    assert held.is_blocked
    assert not held.is_member(ADA.public), "nobody can be judged"
    with pytest.raises(ConversationDamaged) as caught:
        held.require_whole()
    assert caught.value.missing == (grant.id,)
    held.admit(grant)
    assert not held.is_blocked
    assert held.is_member(BOB.public)
    held.require_whole()


def test_a_member_is_one_until_revoked() -> None:
    ada, held = Writer(1), Conversation(ADA.restored().genesis().conversation)
    genesis = ada.genesis()
    held.admit(genesis)
    assert not held.is_member(BOB.public)
    grant = ada.write(held.id, Member(Grant(BOB.public, Role.READER)), parents=[genesis])
    held.admit(grant)
    assert held.is_member(BOB.public)
    held.admit(ada.write(held.id, Member(Revocation(BOB.public)), parents=[grant]))
    assert not held.is_member(BOB.public)


def test_remaining_membership_is_in_send_order_and_holds_what_waits() -> None:
    ada = Writer(1)
    genesis = ada.genesis()
    grants = [genesis]
    for seed in (2, 3):
        body = Member(Grant(Writer(seed).public, Role.READER))
        grants.append(ada.write(genesis.conversation, body, parents=grants[-1:]))
    held = Conversation(genesis.conversation)
    held.admit(genesis)
    assert isinstance(held.admit(grants[2]), Pending)
    assert held.remaining_membership() == [grants[2].id]
    held.admit(grants[1])
    assert held.remaining_membership() == [g.id for g in grants[1:]], "but for the genesis"


def test_a_batch_is_folded_at_its_end() -> None:
    turn = Turn()
    held = Conversation(turn.held.id)
    with held.batch:
        for entry in turn.held.log.entries.values():
            held.admit(entry)
        assert not held.order.nodes
    assert list(held.order.nodes) == [turn.seal.id]


def test_an_answer_ends_the_draft_of_its_request() -> None:
    turn = Turn()
    again = turn.request(turn.answer, basis=turn.seal)
    seal = turn.sealed(again, [turn.answer, again], turn.seal)
    turn.held.drafts[again.id] = DraftStream(turn.held.id, again.id, 1)
    body = turn.held.log.body(turn.answer.id)
    assert body is not None
    stray = Writer(2, epoch=9).write(turn.held.id, body, parents=[again])
    turn.held.admit(stray)
    assert again.id in turn.held.drafts, "no answer to the seal"
    turn.admit(turn.hal.write(turn.held.id, body, parents=[seal], basis=seal))
    assert again.id not in turn.held.drafts


def test_the_next_position_of_a_lane_follows_its_tip() -> None:
    entries = line(2)
    held = Conversation.restore(entries[0].conversation, entries)
    assert held.next_position(lane_of(entries[-1])) == (2, entries[-1].id)
    assert held.next_position(lane_of(entries[-1])._replace(epoch=2)) == (0, None)


def document_line(updates: list[bytes]) -> list[Entry]:
    ada = Writer(1)
    entries = [ada.genesis()]
    for update in updates:
        body = DocumentUpdate(update)
        entries.append(ada.write(entries[0].conversation, body, parents=entries[-1:]))
    return entries


def test_the_document_track_is_read_as_updates() -> None:
    entries = document_line([b"one", b"two"])
    held = Conversation.restore(entries[0].conversation, entries)
    assert [u.update for u in updates_of(held.log)] == [EMPTY_UPDATE, b"one", b"two"]
    assert entries[1].header.track == Track.DOCUMENT


def test_an_update_without_its_body_holds_back_what_follows_it() -> None:
    entries = document_line([b"one", b"two", b"three"])
    bare = replace(entries[2], body=None)
    held = Conversation.restore(entries[0].conversation, [*entries[:2], bare, entries[3]])
    assert [u.update for u in updates_of(held.log)] == [EMPTY_UPDATE, b"one"]
    assert isinstance(held.admit(entries[2]), Duplicate)
    assert [u.update for u in updates_of(held.log)][2:] == [b"two", b"three"]


def test_what_is_no_update_holds_nothing_back_without_its_body() -> None:
    ada, hal = Writer(1), Writer(2)
    genesis = ada.genesis()
    here = genesis.conversation
    grant = ada.write(here, Member(Grant(hal.public, Role.HOST)), parents=[genesis])
    join = ada.write(here, Join(), parents=[genesis], track=Track.DOCUMENT)
    void = hal.write(here, DocumentUpdate(b"a host's"), parents=[join])
    update = ada.write(here, DocumentUpdate(b"one"), parents=[void])
    bare = [replace(entry, body=None) for entry in (join, void)]
    held = Conversation.restore(here, [genesis, grant, *bare, update])
    assert [u.update for u in updates_of(held.log)] == [*[EMPTY_UPDATE] * 3, b"one"]


def test_a_void_update_counts_as_empty() -> None:
    ada, bob = Writer(1), Writer(2)
    genesis = ada.genesis()
    grant = ada.write(
        genesis.conversation, Member(Grant(bob.public, Role.WRITER)), parents=[genesis]
    )
    update = bob.write(genesis.conversation, DocumentUpdate(b"his"), parents=[genesis])
    revocation = ada.write(genesis.conversation, Member(Revocation(bob.public)), parents=[grant])
    held = Conversation.restore(genesis.conversation, [genesis, grant, update])
    assert updates_of(held.log)[-1].update == b"his"
    held.admit(revocation)
    assert updates_of(held.log)[-1].update == EMPTY_UPDATE


def test_the_document_is_built_anew_when_the_membership_or_an_update_comes() -> None:
    ada = Writer(1)
    entries = [ada.genesis()]
    held = Conversation.restore(entries[0].conversation, entries)
    document = held.document
    held.admit(ada.write(held.id, said("hi"), parents=entries))
    assert held.document is document
    held.admit(ada.write(held.id, Member(Grant(BOB.public, Role.READER)), parents=entries))
    assert held.document is not document


@pytest.mark.parametrize("seed", range(5))
def test_a_conversation_is_freed_as_soon_as_nobody_uses_it(seed: int) -> None:
    entries = tuple(_grown(seed))
    held = Conversation.restore(entries[0].conversation, entries)
    held.prepare()
    held.log.heads()
    for tip in held.order.tips():
        frontier(held.order, tip)
        tail(held.order, tip)
    kept = ref(held), ref(held.log), ref(held.order)
    gc.collect()
    gc.disable()
    try:
        del held, tip
        assert [one() for one in kept] == [None] * 3
    finally:
        gc.enable()


def _grown(seed: int) -> list[Entry]:
    story = Story(seed)
    story.grow(80)
    return story.entries
