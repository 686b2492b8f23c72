"""What a client believes of a hub: what it owes, when it asks anew, when it gives up."""

from dataclasses import dataclass, field

import pytest

from replica import limits
from replica.conversation.conversation import Conversation, Shelf
from replica.ids import Digest
from replica.link.channel import Channel
from replica.link.client_side import BUSY_CHECKS_MAX, ClientSide
from replica.link.effects import EffectsBuilder
from replica.link.events import EntriesAcked, EntryFailed, StateChanged, SyncState
from replica.link.messages import Ack, Entries, Fault, Ids, Message, Open, Opened
from replica.link.seeding import SEEDINGS_MAX, seed
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
    shelf: Shelf = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.genesis = self.ada.genesis()
        self.id = self.genesis.conversation
        self.line: list[Entry] = [self.genesis]
        for number in range(5):
            self.line.append(self.ada.write(self.id, said(str(number)), parents=self.line[-1:]))
        self.held = self.shelf[self.id] = Conversation.restore(self.id, self.line)
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

    def told(self, kind: type) -> list:
        return [event for event in self.out.deliver if isinstance(event, kind)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_what_earlier_links_did_not_ack_is_taken_as_unsent(desk: Desk) -> None:
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
    (acked,) = desk.told(EntriesAcked)
    assert set(acked.positions) == {desk.genesis.position, desk.line[-1].position}


def test_an_ack_covers_the_lane_before_it(desk: Desk) -> None:
    channel = desk.channel(desk.genesis)
    desk.receive(Ack(desk.id, (desk.line[3].id,)))
    assert channel.unacked == {e.id for e in desk.line[4:]}


def test_an_append_is_owed_and_asked_about_later(desk: Desk) -> None:
    channel = desk.channel(desk.genesis, desk.line[-1])
    entry = desk.ada.write(desk.id, said("more"), parents=desk.line[-1:])
    desk.side.append(entry, desk.out, 7.0)
    assert (channel.unacked, channel.recheck_at) == ({entry.id}, 7.0 + limits.RESYNC_S)
    assert not channel.outgoing  # the hub has not shown what it holds
    assert desk.out.persist == [entry]


def test_what_no_member_wrote_is_not_appended(desk: Desk) -> None:
    stray = Writer(2).write(desk.id, said("me?"), parents=[desk.genesis])
    with pytest.raises(NotAllowed):
        desk.side.append(stray, desk.out, 0.0)
    assert not desk.held.log.pending


# --- refusals ---------------------------------------------------------------------------


def test_a_hub_that_lost_the_conversation_is_given_all_of_it_once(desk: Desk) -> None:
    channel = desk.channel(desk.genesis, desk.line[-1])
    desk.receive(desk.fault(ConversationUnknown()), 3.0)
    assert list(channel.outgoing) == [e.id for e in desk.line]
    assert channel.unacked == set(channel.outgoing)
    assert (channel.state, channel.recheck_at) == (SyncState.RECONCILING, 3.0)


def test_later_it_is_shown_the_membership_and_then_believed(desk: Desk) -> None:
    channel = desk.channel()
    for _ in range(SEEDINGS_MAX):
        channel.outgoing.clear()
        channel.queued.clear()
        desk.receive(desk.fault(ConversationUnknown()))
    assert list(channel.outgoing) == [desk.genesis.id]
    desk.receive(desk.fault(ConversationUnknown()), 5.0)
    assert channel.state is SyncState.DENIED
    assert channel.recheck_at == 5.0 + limits.DENIED_RECHECK_S


def test_what_is_not_held_cannot_be_seeded(desk: Desk) -> None:
    desk.shelf.clear()
    channel = desk.channel()
    desk.receive(desk.fault(ConversationUnknown()))
    assert channel.state is SyncState.DENIED


def test_entries_the_hub_does_not_know_tell_nothing_yet(desk: Desk) -> None:
    channel = desk.channel()
    desk.receive(desk.fault(ConversationUnknown(), desk.line[1]))
    assert (channel.state, desk.out.deliver) == (SyncState.OPENING, [])


def test_a_refusal_for_good_is_believed_and_told_once(desk: Desk) -> None:
    channel = desk.channel()
    for _ in range(2):
        desk.receive(desk.fault(QuotaExceeded()))
    assert (channel.state, channel.is_open) == (SyncState.DENIED, False)
    assert len(desk.told(EntryFailed)) == len(desk.told(StateChanged)) == 1


def test_a_refusal_for_now_is_told_alone(desk: Desk) -> None:
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


def test_missing_entries_are_sent_and_diverged_lanes_told(desk: Desk) -> None:
    channel = desk.channel()
    desk.receive(desk.fault(EntriesMissing(missing=[desk.line[2].id, b"?" * 32])))
    assert list(channel.outgoing) == [desk.line[2].id]
    assert desk.out.deliver == []
    desk.receive(desk.fault(LanesDiverged()))
    assert channel.state is SyncState.RECONCILING
    assert len(desk.told(EntryFailed)) == 1


def test_a_fault_about_a_conversation_that_is_closed_changes_nothing(desk: Desk) -> None:
    for error in (ConversationUnknown(), QuotaExceeded(), EntriesMissing()):
        desk.receive(desk.fault(error))
    assert (desk.out.deliver, desk.sent) == ([], [])


# --- deadlines --------------------------------------------------------------------------


def test_what_waits_for_credit_is_not_lost(desk: Desk) -> None:
    channel = desk.channel()
    channel.queue([desk.genesis.id])
    channel.recheck_at = 1.0
    desk.side.repair([channel], desk.out, 9.0, may_send=False)
    assert (desk.sent, channel.recheck_at) == ([], 9.0 + limits.RESYNC_S)
    desk.side.repair([channel], desk.out, 9.0, may_send=True)
    (again,) = desk.sent
    assert isinstance(again, Open)
    assert again.heads == desk.held.log.heads()


def test_a_comparison_spoilt_by_traffic_is_put_off_a_few_times(desk: Desk) -> None:
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


def test_only_what_is_believed_to_be_equal_is_verified(desk: Desk) -> None:
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
