"""Entries lost by a store: access meanwhile, repair, pending entries (spec/04-link §10)."""

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.conversation.author import Author
from replica.conversation.conversation import Conversation
from replica.conversation.shelf import MemoryShelf
from replica.ids import EntryId
from replica.link.events import EntriesAdmitted, StateChanged, SyncState
from replica.link.messages import Entries, Fault, Listing, Open, Opened
from replica.log.admission import Admitted
from replica.log.body import Grant, Member, Revocation, Role
from replica.log.damage import Damage, Lost
from replica.log.entry import Entry
from replica.log.kinds import Kind
from replica.refusals import ConversationDamaged
from replica.testing import Peer, of, shelf_of
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.scene import HUB_KEY, Scene
from tests.support.stories import Story, cut_at
from tests.support.writers import Writer, lost, said

BOB, EVE = Writer(2), Writer(66)
NOT_FOUND = "CONVERSATION_NOT_FOUND"
ABSENT = EntryId(bytes(32))


def without(entries: Iterable[Entry], *gone: Entry) -> Conversation:
    """Restore a conversation whose store lost some of its entries."""
    kept = [e for e in entries if e not in gone]
    return Conversation.restore(gone[0].conversation, kept, lost(*gone))


class Damaged(Scene):
    """A hub whose conversation has a writer, Bob, and Eve, who was a member and is revoked."""

    def __init__(self, policy: Policy | None = None) -> None:
        super().__init__(policy)
        self.bob, self.eve = Writer(2), Writer(66)
        self.bob_in = self.grant(BOB.public)
        self.eve_in = self.grant(EVE.public)
        self.first = self.writer.write(self.id, said("first"), parents=[self.genesis])
        self.eves = self.eve.write(self.id, said("from Eve"), parents=[self.first])
        out = Member(Revocation(EVE.public, (cut_at(self.eves),)))
        self.eve_out = self.writer.write(self.id, out, parents=[self.eve_in], listed=[self.eves])
        self.last = self.writer.write(self.id, said("last"), parents=[self.eves])
        self.all = (
            self.genesis, self.bob_in, self.eve_in, self.first, self.eves, self.eve_out, self.last,
        )  # fmt: skip

    def lose(self, *gone: Entry) -> "Damaged":
        """Let the hub start with a store that lost some entries."""
        kept = [e for e in self.all if e not in gone]
        self.hub.load(self.id, kept, lost(*gone))
        return self

    def pass_minutes(self, minutes: int) -> None:
        """Let time pass, in steps shorter than the idle timeout of a link."""
        for _ in range(minutes * 12):
            self.network.advance(5.0)

    def member(self, writer: Writer, *entries: Entry) -> Peer:
        """Link a replica that holds these entries."""
        return self.network.connect(writer.public, shelf=shelf_of(*entries))

    @property
    def digest(self) -> bytes:
        return Conversation.restore(self.id, self.all).log.digest


@pytest.fixture
def scene() -> Damaged:
    return Damaged()


def reasons(peer: Peer) -> set[str]:
    return {fault.reason for fault in of(Fault, peer.received)}


def stored_since(scene: Damaged, before: int) -> list[EntryId]:
    return [entry.id for entry in scene.network.stored[before:]]


# --- pending entries after a restore ------------------------------------------------------


@given(st.integers(0, 400), st.integers(1, 8))
def test_after_any_loss_the_returned_entries_restore_the_conversation(
    seed: int, count: int
) -> None:
    story = Story(seed)
    story.grow(25)
    chance = random.Random(seed)
    gone = chance.sample(story.entries, min(count, len(story.entries)))
    held = without(story.entries, *gone)
    is_membership = any(e.header.kind in (Kind.GENESIS, Kind.MEMBER) for e in gone)
    assert held.is_blocked or not is_membership
    persisted: list[EntryId] = []
    todo = chance.sample(gone, len(gone))
    while todo:
        # Each is sent until its ancestors are admitted; one that is sent too early is dropped.
        entry = todo.pop(0)
        verdict = held.admit(entry)
        if isinstance(verdict, Admitted):
            persisted += [e.id for e in verdict.unstored]
        else:
            held.log.admission.drop([entry.id])
            todo.append(entry)
    assert sorted(persisted) == sorted(e.id for e in gone)  # pending entries are stored already
    assert not held.damage
    assert not held.is_blocked
    assert not held.log.pending
    whole = Conversation.restore(held.id, story.entries)
    assert held.log.digest == whole.log.digest
    assert held.log.membership == whole.log.membership
    assert held.order.nodes.keys() == whole.order.nodes.keys()
    assert held.order.void == whole.order.void


def test_a_body_that_came_while_its_entry_was_pending_is_stored_with_it(scene: Damaged) -> None:
    bare = replace(scene.last, body=None)
    kept = [*(e for e in scene.all if e not in (scene.first, scene.last)), bare]
    held = Conversation.restore(scene.id, kept, lost(scene.first))
    held.admit(scene.last)
    verdict = held.admit(scene.first)
    assert isinstance(verdict, Admitted)
    assert set(verdict.unstored) == {scene.first, scene.last}
    assert set(verdict.entries) == {scene.first, scene.eves, scene.eve_out, scene.last}


def test_a_revocation_pending_for_a_lost_message_blocks_as_a_lost_one(
    scene: Damaged,
) -> None:
    # Its cut names a message of Eve: without that it is not admitted, and she is a member.
    held = without(scene.all, scene.eves)
    assert held.log.membership.is_member(EVE.public)
    assert held.is_blocked
    assert held.damage.missing == {scene.eves.id}
    held.admit(scene.eves)
    assert not held.is_blocked
    assert not held.is_member(EVE.public)


def test_a_lost_message_blocks_nothing(scene: Damaged) -> None:
    held = without(scene.all, scene.last)
    assert not held.is_blocked
    assert held.damage
    assert held.is_member(BOB.public)


def test_a_blocked_replica_signs_nothing(scene: Damaged) -> None:
    held = without(scene.all, scene.bob_in)
    author = Author(scene.writer.key, 9)
    for body in (said("x"), Member(Grant(EVE.public, Role.OWNER))):
        with pytest.raises(ConversationDamaged) as caught:
            author.write(held, body, parents=(scene.genesis.id,), salt=bytes(16), time_ms=1)
        assert caught.value.missing == (scene.bob_in.id,)
        assert caught.value.retryable


# --- a hub that lost membership entries -----------------------------------------------------

CLOSING = ["genesis", "bob_in", "eve_in", "eve_out", "eves"]


@pytest.mark.parametrize("name", CLOSING)
def test_a_hub_that_lost_membership_entries_admits_no_member(name: str) -> None:
    scene = Damaged().lose(getattr(Damaged(), name))
    empty = Hub(HUB_KEY, Policy())
    for writer in (scene.writer, BOB, EVE, Writer(7)):
        peer = scene.member(writer)
        assert of(Listing, peer.received) == []
        peer.send(Open(scene.id, scene.held.log.digest, ()))
        assert reasons(peer) == {NOT_FOUND}
        # The answer is the same as that of a hub without the conversation.
        message = Entries(scene.id, (scene.first,))
        assert scene.hub.begin_push(writer.public).whole(message, 0.0) == empty.begin_push(
            writer.public
        ).whole(message, 0.0)


@pytest.mark.parametrize("name", CLOSING)
def test_a_member_that_seeds_a_damaged_hub_repairs_it(name: str) -> None:
    whole = Damaged()
    gone = getattr(whole, name)
    scene = Damaged().lose(gone)
    pending = set(scene.held.log.pending)
    before = len(scene.network.stored)
    owner = scene.member(scene.writer, *scene.all)
    owner.open(scene.id)
    assert stored_since(scene, before) == [gone.id]
    assert pending <= scene.held.log.entries.keys()
    assert scene.held.log.digest == scene.digest
    assert scene.state(owner) is SyncState.SYNCHRONIZED
    assert not scene.held.is_member(EVE.public)


def test_a_revoked_key_that_omits_its_revocation_is_no_member(scene: Damaged) -> None:
    scene.lose(scene.eve_out)
    eve = scene.member(EVE, *(e for e in scene.all if e is not scene.eve_out))
    eve.open(scene.id)
    scene.pass_minutes(10)
    assert of(Opened, eve.received) == of(Entries, eve.received) == []
    assert reasons(eve) == {NOT_FOUND}
    assert scene.held.is_blocked
    # Nor is she a member once it is back, even if she sends it herself.
    outcomes = scene.hub.begin_push(EVE.public).whole(Entries(scene.id, (scene.eve_out,)), 0.0)[1]
    assert {fault.reason for fault in outcomes.values() if fault} == {NOT_FOUND}
    assert not scene.held.is_blocked
    scene.pass_minutes(2)
    assert of(Opened, eve.received) == []


def test_anyone_may_send_exactly_the_missing_entries(scene: Damaged) -> None:
    scene.lose(scene.eve_in, scene.eve_out)
    other_peer = scene.member(Writer(7))
    other = scene.eve.write(scene.id, said("more of Eve"), parents=[scene.eves])
    forged = replace(scene.eve_out, signature=bytes(64))
    before = len(scene.network.stored)
    for entries in ((other,), (forged,), (replace(scene.eve_in, body=None),), (scene.eve_out,)):
        other_peer.send(Entries(scene.id, entries))
        assert stored_since(scene, before) == []
    assert not scene.hub.links[other_peer.link_id].intake.pending
    other_peer.send(Entries(scene.id, (other, scene.eve_in)))
    assert stored_since(scene, before) == [scene.eve_in.id]
    assert scene.held.is_blocked
    other_peer.send(Entries(scene.id, (scene.eve_out,)))
    assert stored_since(scene, before) == [scene.eve_in.id, scene.eve_out.id]
    assert not scene.held.is_blocked
    assert reasons(other_peer) == {NOT_FOUND}
    assert other.id not in scene.held.log.entries


def test_the_ancestors_of_a_lost_entry_may_be_lost_without_a_trace(scene: Damaged) -> None:
    kept = [e for e in scene.all if e not in (scene.first, scene.eves)]
    scene.hub.load(scene.id, kept, lost(scene.eves))
    assert scene.held.is_blocked
    scene.hub.load(scene.id, [e for e in kept if e is not scene.last], lost(scene.eves))
    for _ in range(2):  # the second time the ids that the first lacked are known
        scene.hub.begin_push(BOB.public).whole(Entries(scene.id, (scene.first, scene.eves)), 0.0)
    assert not scene.held.is_blocked


def test_a_key_that_may_not_create_gets_the_same_from_a_damaged_hub_as_from_an_empty_one() -> None:
    policy = Policy(creators=frozenset({Writer(1).public}))
    scene = Damaged(policy)
    scene.lose(scene.eve_out)
    empty = Hub(HUB_KEY, policy)
    shown = (scene.genesis, scene.bob_in, scene.eve_in)
    for writer in (EVE, Writer(7)):
        message = Entries(scene.id, shown)
        answer = scene.hub.begin_push(writer.public).whole(message, 0.0)
        assert answer == empty.begin_push(writer.public).whole(message, 0.0)
    assert not empty.shelf


def test_entries_pending_since_a_restore_count_against_no_link_and_stay_when_one_ends(
    scene: Damaged,
) -> None:
    scene.lose(scene.first)
    pending = dict(scene.held.log.pending)
    assert set(pending) == {scene.eves.id, scene.eve_out.id, scene.last.id}
    # The revocation is pending too, so nobody is a member; a peer that sends these pays nothing.
    bob = scene.member(BOB, scene.genesis, scene.bob_in)
    bob.send(Entries(scene.id, (scene.eves, scene.last)))
    assert not scene.hub.links[bob.link_id].intake.pending_bytes
    scene.network.disconnect(bob)
    assert scene.held.log.pending == pending


def test_a_repaired_hub_lists_the_conversation_to_those_who_follow(scene: Damaged) -> None:
    scene.lose(scene.bob_in)
    bob = scene.member(BOB)
    assert of(Listing, bob.received) == []
    scene.member(scene.writer, *scene.all).open(scene.id)
    assert [item.conversation for m in of(Listing, bob.received) for item in m.items] == [scene.id]


def test_a_conversation_of_unknown_loss_is_not_repaired(scene: Damaged) -> None:
    scene.hub.load(scene.id, (), Lost(is_unreadable=True))
    owner = scene.member(scene.writer, *scene.all)
    owner.open(scene.id)
    assert reasons(owner) == {NOT_FOUND}
    assert not scene.held.log.entries
    assert scene.hub.shelf[scene.id].is_blocked


# --- entries lost beside the membership ------------------------------------------------------


def talk(scene: Damaged) -> list[Entry]:
    """Return three messages of two members that follow each other, not sent yet."""
    writer = Writer(1, epoch=2)
    first = writer.write(scene.id, said("a"), parents=[scene.genesis])
    second = scene.bob.write(scene.id, said("b"), parents=[first])
    return [first, second, writer.write(scene.id, said("c"), parents=[second])]


def test_a_hub_that_lost_a_message_gets_it_again_and_admits_the_pending_ones(
    scene: Damaged,
) -> None:
    messages = talk(scene)
    scene.all = (*scene.all, *messages)
    scene.lose(messages[0])
    assert not scene.held.is_blocked
    assert scene.held.log.pending.keys() == {e.id for e in messages[1:]}
    before = len(scene.network.stored)
    owner = scene.member(scene.writer, *scene.all)
    acked = owner.shelf[scene.id].log.heads()
    owner.open(scene.id, acked=acked)  # an earlier link had all of it acked
    assert stored_since(scene, before) == [messages[0].id]
    assert scene.held.log.digest == owner.shelf[scene.id].log.digest
    assert scene.state(owner) is SyncState.SYNCHRONIZED


# --- a client that lost entries ----------------------------------------------------------------


def damaged_client(scene: Damaged, writer: Writer, *gone: Entry) -> Peer:
    """Link a replica whose store lost some entries."""
    return scene.network.connect(writer.public, shelf=MemoryShelf([without(scene.all, *gone)]))


@pytest.mark.parametrize("name", [*CLOSING, "first", "last"])
def test_a_replica_asks_a_hub_for_the_entries_its_store_lost(name: str) -> None:
    scene = Damaged()
    scene.give(*scene.all)
    gone = getattr(scene, name)
    bob = damaged_client(scene, BOB, gone)
    held = bob.shelf[scene.id]
    acked = Conversation.restore(scene.id, scene.all).log.heads()
    bob.open(scene.id, acked=acked)
    assert {e.id for e in bob.stored} == {gone.id}
    assert not held.damage
    assert held.log.digest == scene.digest
    assert scene.state(bob) is SyncState.SYNCHRONIZED
    assert [f.missing for f in of(Fault, bob.sent)] == [(gone.id,)]
    (event, *_) = of(EntriesAdmitted, bob.events)
    assert gone in event.entries


def test_a_replica_and_its_hub_repair_each_other(scene: Damaged) -> None:
    messages = talk(scene)
    scene.all = (*scene.all, *messages)
    scene.lose(messages[1])
    bob = damaged_client(scene, BOB, messages[0])
    bob.open(scene.id)
    # Bob's own message was pending for the first: released by the hub, the hub lacks it.
    assert not scene.held.damage
    assert scene.held.log.digest == bob.shelf[scene.id].log.digest
    assert scene.held.log.entries.keys() == {e.id for e in scene.all}
    assert scene.state(bob) is SyncState.SYNCHRONIZED
    assert SyncState.DESYNCHRONIZED not in [e.state for e in of(StateChanged, bob.events)]


def test_a_replica_and_its_hub_that_lost_different_members_repair_each_other(
    scene: Damaged,
) -> None:
    scene.lose(scene.eve_out)
    owner = damaged_client(scene, scene.writer, scene.bob_in)
    owner.open(scene.id)
    scene.pass_minutes(2)
    assert scene.held.log.digest == owner.shelf[scene.id].log.digest == scene.digest
    assert scene.state(owner) is SyncState.SYNCHRONIZED


def test_a_blocked_replica_sends_no_log_to_a_hub_without_one(scene: Damaged) -> None:
    # Without the revocation, the hub would take Eve for a member.
    owner = damaged_client(scene, scene.writer, scene.eve_out)
    owner.open(scene.id)
    scene.pass_minutes(5)
    assert scene.id not in scene.hub.shelf
    assert scene.genesis.id not in {e.id for m in of(Entries, owner.sent) for e in m.entries}
    assert {e.header.track for m in of(Entries, owner.sent) for e in m.entries} == {3}
    # A member that holds all entries sends them, and the replica is repaired.
    scene.member(BOB, *scene.all).open(scene.id)
    scene.pass_minutes(2)
    assert not owner.shelf[scene.id].is_blocked
    assert owner.shelf[scene.id].log.digest == scene.digest


def test_a_blocked_replica_sends_its_own_entries_once_it_is_whole(scene: Damaged) -> None:
    scene.give(*(e for e in scene.all if e is not scene.last))
    owner = damaged_client(scene, scene.writer, scene.bob_in)
    owner.open(scene.id)
    assert not owner.shelf[scene.id].is_blocked
    assert scene.last.id in scene.held.log.entries
    first = of(Entries, owner.sent)[0]
    assert first.ids == (scene.last.id,)


def test_a_revoked_replica_stays_blocked_and_changes_no_other(scene: Damaged) -> None:
    scene.give(*scene.all)
    eve = damaged_client(scene, EVE, scene.eve_out)
    eve.open(scene.id)
    scene.pass_minutes(5)
    assert eve.shelf[scene.id].is_blocked
    assert of(Opened, eve.received) == of(Entries, eve.received) == []
    assert scene.held.log.digest == scene.digest


@pytest.mark.parametrize(
    ("lost_ids", "pends", "is_damaged", "blocks"),
    [
        (Lost(), False, False, False),
        (Lost(entries=frozenset([ABSENT])), False, True, False),
        (Lost(membership=frozenset([ABSENT])), False, True, True),
        (Lost(is_unreadable=True), False, True, True),
        (Lost(), True, True, False),
    ],
)
def test_a_conversation_is_damaged_while_entries_are_missing_or_pending(
    scene: Damaged, lost_ids: Lost, pends: bool, is_damaged: bool, blocks: bool
) -> None:
    damage = Damage(lost_ids, [scene.last] if pends else [])
    assert bool(lost_ids) == (is_damaged and not pends)
    assert bool(damage) == is_damaged
    assert damage.is_blocking == blocks
    assert damage.receive([scene.last]) == ({scene.last.id} if pends else set())
