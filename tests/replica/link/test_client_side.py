"""The client's side of a link: unacked entries, repeated comparisons, final refusals."""

from dataclasses import dataclass, field

import pytest

from replica import limits
from replica.conversation.conversation import Conversation
from replica.conversation.shelf import MemoryShelf
from replica.ids import Digest
from replica.link.acks import acked_by
from replica.link.channel import Channel
from replica.link.client_side import BUSY_CHECKS_MAX, ClientSide
from replica.link.effects import EffectsBuilder
from replica.link.events import EntriesAcked, EntryFailed, StateChanged, SyncState
from replica.link.messages import Ack, Entries, Fault, Ids, Message, Open, Opened
from replica.link.seed import SEEDINGS_MAX, seed
from replica.log.body import Grant, Member, Role
from replica.log.damage import Lost
from replica.log.entry import Entry
from replica.refusals import (
    ConversationUnknown,
    EntriesMissing,
    LanesDiverged,
    NotAllowed,
    QuotaExceeded,
)
from tests.support.writers import Writer, said

OTHER = Digest(b"?" * 32)


@dataclass
class Desk:
    """A client with one conversation of five messages, open on a link."""

    ada: Writer = field(default_factory=lambda: Writer(1))
    sent: list[Message] = field(default_factory=list)
    out: EffectsBuilder = field(default_factory=EffectsBuilder)
    shelf: MemoryShelf = field(default_factory=MemoryShelf)

    def __post_init__(self) -> None:
        self.genesis = self.ada.genesis()
        self.id = self.genesis.conversation
        self.line: list[Entry] = [self.genesis]
        for number in range(5):
            self.line.append(self.ada.write(self.id, said(str(number)), parents=self.line[-1:]))
        self.held = Conversation.restore(self.id, self.line)
        self.shelf.add(self.held)
        self.side = ClientSide(
            self.shelf,
            send=lambda message, _out: self.sent.append(message),
            may_create=lambda _key: True,
            entries_max=None,
        )

    def channel(self, *acked: Entry) -> Channel:
        positions = [entry.position for entry in acked]
        return self.side.add_channel(self.id, positions, drafts=True)

    def receive(self, message: Message, now: float = 0.0) -> None:
        self.side.receive(message, None, self.out, now)

    def fault(self, error: Exception, entry: Entry | None = None) -> Fault:
        return Fault.of(error, self.id, entry.id if entry else None)  # type: ignore[arg-type]

    def delivered(self, kind: type) -> list:
        return [event for event in self.out.deliver if isinstance(event, kind)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_entries_without_an_ack_of_an_earlier_link_are_unacked(desk: Desk) -> None:
    assert desk.channel().unacked == {e.id for e in desk.line}
    genesis, *line = desk.line
    assert desk.channel(genesis, line[2]).unacked == {e.id for e in line[3:]}
    assert not desk.channel(genesis, line[-1]).unacked


def test_equal_digests_ack_everything(desk: Desk) -> None:
    channel = desk.channel()
    desk.side.send_open(channel, desk.out, 0.0, with_heads=True)
    desk.receive(Opened(desk.id, desk.held.log.digest, True))
    assert channel.state is SyncState.SYNCHRONIZED
    assert (channel.unacked, channel.recheck_at, channel.is_open) == (set(), None, True)
    (acked,) = desk.delivered(EntriesAcked)
    assert set(acked.positions) == {desk.genesis.position, desk.line[-1].position}


def test_an_ack_covers_the_lane_before_it(desk: Desk) -> None:
    channel = desk.channel(desk.genesis)
    desk.receive(Ack(desk.id, (desk.line[3].id,)))
    assert channel.unacked == {e.id for e in desk.line[4:]}


def test_an_append_is_unacked_and_checked_later(desk: Desk) -> None:
    channel = desk.channel(desk.genesis, desk.line[-1])
    entry = desk.ada.write(desk.id, said("more"), parents=desk.line[-1:])
    desk.side.append(entry, desk.out, 7.0)
    assert (channel.unacked, channel.recheck_at) == ({entry.id}, 7.0 + limits.RESYNC_S)
    assert not channel.outgoing  # the hub has not sent its heads yet
    assert desk.out.persist == [entry]


def test_an_entry_of_a_non_member_is_not_appended(desk: Desk) -> None:
    stray = Writer(2).write(desk.id, said("me?"), parents=[desk.genesis])
    with pytest.raises(NotAllowed):
        desk.side.append(stray, desk.out, 0.0)
    assert not desk.held.log.pending


# --- refusals ---------------------------------------------------------------------------


def test_a_hub_that_lost_the_conversation_is_sent_all_of_it_once(desk: Desk) -> None:
    channel = desk.channel(desk.genesis, desk.line[-1])
    desk.receive(desk.fault(ConversationUnknown()), 3.0)
    assert list(channel.outgoing) == [e.id for e in desk.line]
    assert channel.unacked == set(channel.outgoing)
    assert (channel.state, channel.recheck_at) == (SyncState.RECONCILING, 3.0)


def test_later_tries_send_the_membership_and_then_end(desk: Desk) -> None:
    channel = desk.channel()
    for _ in range(SEEDINGS_MAX):
        channel.outgoing.clear()
        channel.queued.clear()
        desk.receive(desk.fault(ConversationUnknown()))
    assert list(channel.outgoing) == [desk.genesis.id]
    desk.receive(desk.fault(ConversationUnknown()), 5.0)
    assert channel.state is SyncState.DENIED
    assert channel.recheck_at == 5.0 + limits.DENIED_RECHECK_S


def test_a_conversation_not_held_is_not_seeded(desk: Desk) -> None:
    desk.shelf.remove(desk.id)
    channel = desk.channel()
    desk.receive(desk.fault(ConversationUnknown()))
    assert channel.state is SyncState.DENIED


def test_a_fault_for_unknown_entries_changes_no_state(desk: Desk) -> None:
    channel = desk.channel()
    desk.receive(desk.fault(ConversationUnknown(), desk.line[1]))
    assert (channel.state, desk.out.deliver) == (SyncState.OPENING, [])


def test_a_final_refusal_is_reported_once(desk: Desk) -> None:
    channel = desk.channel()
    for _ in range(2):
        desk.receive(desk.fault(QuotaExceeded()))
    assert (channel.state, channel.is_open) == (SyncState.DENIED, False)
    assert len(desk.delivered(EntryFailed)) == len(desk.delivered(StateChanged)) == 1


def test_a_retryable_refusal_is_only_reported(desk: Desk) -> None:
    channel = desk.channel()
    fault = Fault("BUSY", retryable=True, conversation=desk.id)
    desk.receive(fault)
    assert channel.state is SyncState.OPENING
    assert desk.out.deliver == [EntryFailed(desk.id, None, fault)]


def test_a_refused_entry_is_not_sent_again(desk: Desk) -> None:
    channel = desk.channel()
    desk.receive(desk.fault(NotAllowed(), desk.line[2]))
    assert channel.refused == {desk.line[2].id}
    channel.queue(e.id for e in desk.line)
    assert desk.line[2].id not in channel.outgoing


def test_missing_entries_are_sent_and_diverged_lanes_reported(desk: Desk) -> None:
    channel = desk.channel()
    desk.receive(desk.fault(EntriesMissing(missing=[desk.line[2].id, b"?" * 32])))
    assert list(channel.outgoing) == [desk.line[2].id]
    assert desk.out.deliver == []
    desk.receive(desk.fault(LanesDiverged()))
    assert channel.state is SyncState.RECONCILING
    assert len(desk.delivered(EntryFailed)) == 1


def test_a_fault_about_a_conversation_that_is_closed_changes_nothing(desk: Desk) -> None:
    for error in (ConversationUnknown(), QuotaExceeded(), EntriesMissing()):
        desk.receive(desk.fault(error))
    assert (desk.out.deliver, desk.sent) == ([], [])


# --- deadlines --------------------------------------------------------------------------


def test_waiting_for_credit_postpones_the_recheck(desk: Desk) -> None:
    channel = desk.channel()
    channel.queue([desk.genesis.id])
    channel.recheck_at = 1.0
    desk.side.repair([channel], desk.out, 9.0, may_send=False)
    assert (desk.sent, channel.recheck_at) == ([], 9.0 + limits.RESYNC_S)
    desk.side.repair([channel], desk.out, 9.0, may_send=True)
    (again,) = desk.sent
    assert isinstance(again, Open)
    assert again.heads == desk.held.log.heads()


def test_an_inconclusive_comparison_is_postponed_a_few_times(desk: Desk) -> None:
    channel = desk.channel(desk.genesis, desk.line[-1])
    channel.state, channel.is_open = SyncState.SYNCHRONIZED, True
    for _ in range(BUSY_CHECKS_MAX):
        channel.received_since_check = True
        desk.receive(Opened(desk.id, OTHER, False), 4.0)
        assert channel.is_check_due(4.0 + limits.RESYNC_S)
        assert not desk.sent
        desk.side.verify([channel], desk.out, 4.0 + limits.RESYNC_S)
        assert isinstance(desk.sent.pop(), Open)
    channel.received_since_check = True
    desk.receive(Opened(desk.id, OTHER, False), 4.0)
    (shown,) = desk.sent
    assert isinstance(shown, Open)
    assert shown.heads is not None


def test_only_synchronized_conversations_are_verified(desk: Desk) -> None:
    channel = desk.channel()
    for state in SyncState:
        channel.state = state
        desk.side.verify([channel], desk.out, 0.0)
    assert desk.sent == []  # there is something to ack
    channel.unacked.clear()
    for state in SyncState:
        channel.state = state
        desk.side.verify([channel], desk.out, 0.0)
    assert len(desk.sent) == 1


def test_what_the_hubs_entries_set_free_is_not_acked(desk: Desk) -> None:
    """LINK-15: only what the hub sent itself is held there; the rest was here, and pending."""
    bob = Writer(2)
    grant = desk.ada.write(desk.id, Member(Grant(bob.public, Role.WRITER)), parents=[desk.genesis])
    lost = bob.write(desk.id, said("lost here"), parents=desk.line[-1:])
    behind = desk.ada.write(desk.id, said("written here"), parents=[lost])
    stored = [*desk.line, grant, behind]
    desk.held = Conversation.restore(desk.id, stored, Lost(frozenset({lost.id})))
    desk.shelf.add(desk.held)
    channel = desk.channel(desk.genesis, grant)
    desk.receive(Entries(desk.id, (lost,)))
    assert desk.held.log.entries.keys() == {entry.id for entry in (*stored, lost)}
    assert channel.unacked == {entry.id for entry in (*desk.line[1:], behind)}
    assert [e for e in desk.out.deliver if isinstance(e, EntriesAcked)] == []
    assert acked_by(desk.out.deliver) == {desk.id: (lost.position,)}


def test_entries_that_set_nothing_free_cause_no_comparison(desk: Desk) -> None:
    channel = desk.channel(desk.line[-1])
    channel.state, channel.is_open = SyncState.SYNCHRONIZED, True
    channel.unacked.clear()
    news = desk.ada.write(desk.id, said("news"), parents=desk.line[-1:])
    desk.receive(Entries(desk.id, (news,)))
    assert news.id in desk.held.log.entries
    assert channel.recheck_at is None
    assert desk.sent == []


def test_what_became_equal_before_the_hub_opened_its_side_is_opened_again(desk: Desk) -> None:
    """LINK-12: entries of an Open before it arrive between a digest and its answer."""
    channel = desk.channel(*desk.line)
    desk.side.send_open(channel, desk.out, 0.0, with_heads=False)
    news = desk.ada.write(desk.id, said("news"), parents=desk.line[-1:])
    desk.receive(Entries(desk.id, (news,)))
    digest, heads = desk.held.log.digest, desk.held.log.heads()
    desk.receive(Opened(desk.id, digest, False, heads), 1.0)
    assert (channel.state, channel.is_open) == (SyncState.OPENING, False)
    assert desk.sent[-1] == Open(desk.id, digest, None, True)
    desk.receive(Opened(desk.id, digest, True), 2.0)
    assert (channel.state, channel.is_open) == (SyncState.SYNCHRONIZED, True)


# --- rules of one step ---------------------------------------------------------------------


def test_the_first_unacked_entry_sets_the_recheck_and_later_ones_leave_it(desk: Desk) -> None:
    channel = desk.channel(desk.genesis, desk.line[-1])
    for now in (7.0, 9.0):
        parents = [desk.ada.last(desk.id) or desk.genesis]
        desk.side.append(desk.ada.write(desk.id, said("x"), parents=parents), desk.out, now)
    assert channel.recheck_at == 7.0 + limits.RESYNC_S


def test_an_open_replaces_a_comparison_that_was_put_off(desk: Desk) -> None:
    channel = desk.channel()
    channel.check_at = 1.0
    desk.side.send_open(channel, desk.out, 4.0, with_heads=True)
    assert channel.deadlines() == [4.0 + limits.RESYNC_S]


@pytest.mark.parametrize("is_unacked", [True, False])
def test_a_comparison_put_off_is_rechecked_only_for_unacked_entries(
    desk: Desk, is_unacked: bool
) -> None:
    channel = desk.channel(desk.genesis, desk.line[-1])
    channel.state, channel.is_open, channel.recheck_at = SyncState.SYNCHRONIZED, True, 3.0
    channel.received_since_check = True
    channel.unacked = {desk.line[-1].id} if is_unacked else set()
    desk.receive(Opened(desk.id, OTHER, False), 2.0)
    assert channel.check_at == 2.0 + limits.RESYNC_S
    assert channel.recheck_at == (3.0 if is_unacked else None)


def test_a_channel_reconciles_until_the_heads_of_the_hub_are_held(desk: Desk) -> None:
    channel = desk.channel(desk.genesis, desk.line[-1])
    desk.side.send_open(channel, desk.out, 0.0, with_heads=True)
    ahead = desk.ada.write(desk.id, said("ahead"), parents=desk.line[-1:])
    desk.receive(Opened(desk.id, OTHER, False, (desk.genesis.position, ahead.position)))
    assert channel.wanted == {ahead.id}
    assert channel.state is SyncState.RECONCILING
    desk.receive(Entries(desk.id, (ahead,)))
    assert channel.state is SyncState.SYNCHRONIZED


def test_a_complete_list_of_ids_that_are_all_held_here_synchronizes(desk: Desk) -> None:
    channel = desk.channel()
    channel.state, channel.recheck_at = SyncState.RECONCILING, 3.0
    desk.receive(Ids(desk.id, tuple(sorted(desk.held.log.entries)), False, True))
    assert channel.state is SyncState.SYNCHRONIZED
    assert (channel.wanted, channel.unacked, channel.recheck_at) == (set(), set(), None)


def test_a_list_of_ids_without_ours_is_asked_about_later(desk: Desk) -> None:
    channel = desk.channel()
    channel.state = SyncState.SYNCHRONIZED
    desk.receive(Ids(desk.id, (desk.genesis.id,), False, True), 2.0)
    assert channel.unacked == {entry.id for entry in desk.line[1:]}
    assert list(channel.outgoing) == [entry.id for entry in desk.line[1:]]
    assert channel.recheck_at == 2.0 + limits.RESYNC_S
    desk.receive(Ids(desk.id, (desk.genesis.id,), False, True), 4.0)
    assert channel.recheck_at == 2.0 + limits.RESYNC_S


def test_a_list_of_ids_that_shows_all_acked_sets_no_recheck(desk: Desk) -> None:
    channel = desk.channel(desk.genesis, desk.line[-1])
    channel.state = SyncState.SYNCHRONIZED
    desk.receive(Ids(desk.id, tuple(sorted(desk.held.log.entries)), False, True))
    assert channel.recheck_at is None


def test_a_seeding_sends_again_what_was_in_flight_and_is_rechecked(desk: Desk) -> None:
    channel = desk.channel()
    channel.in_flight = {entry.id for entry in desk.line}
    for now, expected in ((3.0, desk.line), (4.0, desk.line[:1])):
        assert seed(channel, desk.held, now)
        assert list(channel.outgoing) == [entry.id for entry in expected]
        channel.outgoing.clear()
        channel.queued.clear()
        channel.in_flight = {entry.id for entry in desk.line}
    assert channel.recheck_at == 4.0 + limits.RESYNC_S


def test_a_hub_that_opened_the_conversation_and_lost_it_again_is_given_all_of_it(
    desk: Desk,
) -> None:
    channel = desk.channel()
    for _ in range(2):
        desk.receive(desk.fault(ConversationUnknown()))
        assert list(channel.outgoing) == [entry.id for entry in desk.line]
        desk.receive(Opened(desk.id, desk.held.log.digest, True))
        channel.outgoing.clear()
        channel.queued.clear()


def test_a_denied_channel_offers_the_membership_alone_from_then_on(desk: Desk) -> None:
    channel = desk.channel()
    channel.seedings = SEEDINGS_MAX
    desk.receive(desk.fault(ConversationUnknown()))
    assert (channel.state, channel.seedings) == (SyncState.DENIED, 1)


def test_entries_that_the_hub_lacks_are_sent_and_no_refusal(desk: Desk) -> None:
    channel = desk.channel()
    lacking = [entry.id for entry in desk.line[1:3]]
    desk.receive(desk.fault(EntriesMissing(missing=lacking)))
    assert list(channel.outgoing) == lacking
    assert channel.state is SyncState.OPENING


def test_ids_that_only_the_hub_holds_keep_a_channel_reconciling(desk: Desk) -> None:
    channel = desk.channel(desk.genesis, desk.line[-1])
    channel.state = SyncState.RECONCILING
    ahead = desk.ada.write(desk.id, said("ahead"), parents=desk.line[-1:])
    desk.receive(Ids(desk.id, tuple(sorted([*desk.held.log.entries, ahead.id])), False, True))
    assert channel.wanted == {ahead.id}
    assert channel.state is SyncState.RECONCILING
