"""The client's side of a link: unacked entries, repeated comparisons, final refusals."""

import pytest

from replica import limits
from replica.conversation.conversation import Conversation
from replica.ids import Digest
from replica.limits import SEEDINGS_MAX
from replica.link.acks import acked_by
from replica.link.client_side import BUSY_CHECKS_MAX
from replica.link.events import EntriesAcked, EntryFailed, StateChanged, SyncState
from replica.link.messages import Ack, Entries, Fault, Ids, Open, Opened
from replica.link.outgoing import Outgoing
from replica.link.seed import seed
from replica.link.sent_opens import SentOpen
from replica.log.body import Grant, Member, Role
from replica.log.damage import Lost
from replica.refusals import (
    ConversationUnknown,
    CreateForbidden,
    EntriesMissing,
    LanesDiverged,
    NotAllowed,
    QuotaExceeded,
)
from tests.support.client_scene import Scene
from tests.support.writers import Writer, said

OTHER = Digest(b"?" * 32)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_entries_without_an_ack_of_an_earlier_link_are_unacked(scene: Scene) -> None:
    assert scene.channel().unacked == {e.id for e in scene.line}
    genesis, *line = scene.line
    assert scene.channel(genesis, line[2]).unacked == {e.id for e in line[3:]}
    assert not scene.channel(genesis, line[-1]).unacked


def test_equal_digests_ack_everything(scene: Scene) -> None:
    channel = scene.channel()
    scene.side.send_open(channel, scene.out, 0.0, with_heads=True)
    scene.receive(Opened(scene.id, scene.held.log.digest, True))
    assert channel.state is SyncState.SYNCHRONIZED
    assert (channel.unacked, channel.recheck_at, channel.is_open) == (set(), None, True)
    (acked,) = scene.delivered(EntriesAcked)
    assert set(acked.positions) == {scene.genesis.position, scene.line[-1].position}


def test_an_ack_covers_the_lane_before_it(scene: Scene) -> None:
    channel = scene.channel(scene.genesis)
    channel.sent.add(scene.line[3].id)
    scene.receive(Ack(scene.id, (scene.line[3].id,)))
    assert channel.unacked == {e.id for e in scene.line[4:]}


def test_an_ack_of_what_was_never_sent_is_not_believed(scene: Scene) -> None:
    channel = scene.channel(scene.genesis)
    scene.receive(Ack(scene.id, tuple(e.id for e in scene.line)))
    assert channel.unacked == {e.id for e in scene.line[1:]}
    assert not scene.delivered(EntriesAcked)


def test_equal_is_believed_of_the_digest_that_was_sent_alone(scene: Scene) -> None:
    channel = scene.channel()
    scene.side.send_open(channel, scene.out, 0.0, with_heads=False)
    scene.held.admit(scene.ada.write(scene.id, said("new"), parents=scene.line[-1:]))
    scene.receive(Opened(scene.id, scene.held.log.digest, True))
    assert channel.state is not SyncState.SYNCHRONIZED
    assert channel.unacked
    assert channel.deadlines() == [limits.RESYNC_S]  # asked anew then


def test_an_append_is_unacked_and_checked_later(scene: Scene) -> None:
    channel = scene.channel(scene.genesis, scene.line[-1])
    entry = scene.ada.write(scene.id, said("more"), parents=scene.line[-1:])
    scene.side.append(entry, scene.out, 7.0)
    assert (channel.unacked, channel.recheck_at) == ({entry.id}, 7.0 + limits.RESYNC_S)
    assert not channel.outgoing  # the hub has not sent its heads yet
    assert scene.out.persist == [entry]


def test_an_entry_of_a_non_member_is_not_appended(scene: Scene) -> None:
    stray = Writer(2).write(scene.id, said("me?"), parents=[scene.genesis])
    with pytest.raises(NotAllowed):
        scene.side.append(stray, scene.out, 0.0)
    assert not scene.held.log.pending


# --- refusals ---------------------------------------------------------------------------


def test_a_hub_that_lost_the_conversation_is_sent_all_of_it_once(scene: Scene) -> None:
    channel = scene.channel(scene.genesis, scene.line[-1])
    scene.receive(scene.fault(ConversationUnknown()), 3.0)
    assert list(channel.outgoing.single) == [e.id for e in scene.line]
    assert channel.unacked == set(channel.outgoing.single)
    assert (channel.state, channel.recheck_at) == (SyncState.RECONCILING, 3.0)


def test_later_tries_send_the_membership_and_then_end(scene: Scene) -> None:
    channel = scene.channel()
    for _ in range(SEEDINGS_MAX):
        channel.outgoing = Outgoing()
        scene.receive(scene.fault(ConversationUnknown()))
    assert list(channel.outgoing.single) == [scene.genesis.id]
    scene.receive(scene.fault(ConversationUnknown()), 5.0)
    assert channel.state is SyncState.DENIED
    assert channel.recheck_at == 5.0 + limits.DENIED_RECHECK_S


def test_after_entries_of_a_seeding_are_refused_the_hub_is_asked_at_once(scene: Scene) -> None:
    """So a removed member is denied in three round trips, not after as many pauses."""
    channel = scene.channel()
    for number in range(2 * SEEDINGS_MAX):
        entry = scene.line[1] if number % 2 else None
        scene.receive(scene.fault(ConversationUnknown(), entry), 3.0)
        assert channel.recheck_at == 3.0 + (limits.RESYNC_S if number in (2, 4) else 0.0)
    scene.receive(scene.fault(ConversationUnknown()), 3.0)
    scene.receive(scene.fault(ConversationUnknown(), scene.line[1]), 3.0)
    assert channel.state is SyncState.DENIED
    assert channel.recheck_at == 3.0 + limits.DENIED_RECHECK_S


def test_the_hub_is_asked_behind_a_seeding_though_all_of_it_is_acked_before(scene: Scene) -> None:
    """It has the conversation open for this link only then, and sends nothing of it before."""
    channel = scene.channel()
    scene.receive(scene.fault(ConversationUnknown()), 3.0)
    channel.sent.update(channel.unacked)
    scene.receive(Ack(scene.id, tuple(e.id for e in scene.line)), 3.1)
    assert not channel.unacked
    assert (channel.state, channel.recheck_at) == (SyncState.RECONCILING, 3.0)
    scene.side.send_open(channel, scene.out, 3.2, with_heads=True)
    digest = scene.held.log.digest
    scene.receive(Opened(scene.id, digest, True), 3.3)
    assert (channel.state, channel.recheck_at) == (SyncState.SYNCHRONIZED, None)


def test_refused_entries_ask_nothing_while_a_question_is_open(scene: Scene) -> None:
    """Else each of them asks, each answer sends the log again, and the exchange never ends."""
    channel = scene.channel()
    scene.receive(scene.fault(ConversationUnknown()), 3.0)
    scene.side.send_open(channel, scene.out, 3.0, with_heads=True)
    for entry in scene.line:
        scene.receive(scene.fault(ConversationUnknown(), entry), 3.1)
    assert channel.recheck_at == 3.0 + limits.RESYNC_S


def test_a_hub_that_refused_the_genesis_knows_no_conversation_for_that_reason(
    scene: Scene,
) -> None:
    channel = scene.channel()
    scene.receive(scene.fault(CreateForbidden(), scene.genesis))
    for _ in range(SEEDINGS_MAX + 1):
        scene.receive(scene.fault(ConversationUnknown()))
    assert channel.state is SyncState.DENIED
    *_, failed = scene.delivered(EntryFailed)
    assert (failed.entry, failed.fault) == (None, scene.fault(CreateForbidden()))


def test_a_hub_that_held_the_conversation_since_knows_none_for_another_reason(
    scene: Scene,
) -> None:
    channel = scene.channel()
    scene.receive(scene.fault(CreateForbidden(), scene.genesis))
    scene.side.send_open(channel, scene.out, 0.0, with_heads=True)
    scene.receive(Opened(scene.id, scene.held.log.digest, True))
    for _ in range(SEEDINGS_MAX + 1):
        scene.receive(scene.fault(ConversationUnknown()))
    *_, failed = scene.delivered(EntryFailed)
    assert failed.fault == scene.fault(ConversationUnknown())


def test_a_copy_of_a_refusal_leaves_a_denied_channel_as_it_is(scene: Scene) -> None:
    channel = scene.channel()
    channel.seedings = SEEDINGS_MAX
    for _ in range(3):
        scene.receive(scene.fault(ConversationUnknown()), 3.0)
    assert (channel.state, list(channel.outgoing.single)) == (SyncState.DENIED, [])
    assert channel.recheck_at == 3.0 + limits.DENIED_RECHECK_S


def test_a_conversation_not_held_is_not_seeded(scene: Scene) -> None:
    scene.shelf.remove(scene.id)
    channel = scene.channel()
    scene.receive(scene.fault(ConversationUnknown()))
    assert channel.state is SyncState.DENIED


def test_a_fault_for_unknown_entries_changes_no_state(scene: Scene) -> None:
    channel = scene.channel()
    scene.receive(scene.fault(ConversationUnknown(), scene.line[1]))
    assert (channel.state, scene.out.deliver) == (SyncState.OPENING, [])


def test_a_final_refusal_is_reported_once(scene: Scene) -> None:
    channel = scene.channel()
    for _ in range(2):
        scene.receive(scene.fault(QuotaExceeded()))
    assert (channel.state, channel.is_open) == (SyncState.DENIED, False)
    assert len(scene.delivered(EntryFailed)) == len(scene.delivered(StateChanged)) == 1


def test_a_retryable_refusal_is_only_reported(scene: Scene) -> None:
    channel = scene.channel()
    fault = Fault("BUSY", retryable=True, conversation=scene.id)
    scene.receive(fault)
    assert channel.state is SyncState.OPENING
    assert scene.out.deliver == [EntryFailed(scene.id, None, fault)]


def test_a_refused_entry_is_not_sent_again(scene: Scene) -> None:
    channel = scene.channel()
    scene.receive(scene.fault(NotAllowed(), scene.line[2]))
    assert channel.refused.keys() == {scene.line[2].id}
    channel.queue(e.id for e in scene.line)
    assert scene.line[2].id not in channel.outgoing.single


def test_missing_entries_are_sent_and_diverged_lanes_reported(scene: Scene) -> None:
    channel = scene.channel()
    scene.receive(scene.fault(EntriesMissing(missing=[scene.line[2].id, b"?" * 32])))
    assert list(channel.outgoing.single) == [scene.line[2].id]
    assert scene.out.deliver == []
    scene.receive(scene.fault(LanesDiverged()))
    assert channel.state is SyncState.RECONCILING
    assert len(scene.delivered(EntryFailed)) == 1


def test_a_fault_about_a_conversation_that_is_closed_changes_nothing(scene: Scene) -> None:
    for error in (ConversationUnknown(), QuotaExceeded(), EntriesMissing()):
        scene.receive(scene.fault(error))
    assert (scene.out.deliver, scene.sent) == ([], [])


# --- deadlines --------------------------------------------------------------------------


def test_waiting_for_credit_postpones_the_recheck(scene: Scene) -> None:
    channel = scene.channel()
    channel.queue([scene.genesis.id])
    channel.recheck_at = 1.0
    scene.side.repair([channel], scene.out, 9.0, may_send=False)
    assert (scene.sent, channel.recheck_at) == ([], 9.0 + limits.RESYNC_S)
    scene.side.repair([channel], scene.out, 9.0, may_send=True)
    (again,) = scene.sent
    assert isinstance(again, Open)
    assert again.heads == scene.held.log.heads()


def test_an_inconclusive_comparison_is_postponed_a_few_times(scene: Scene) -> None:
    channel = scene.channel(scene.genesis, scene.line[-1])
    channel.state, channel.is_open = SyncState.SYNCHRONIZED, True
    channel.opens.add(SentOpen(1, OTHER, with_heads=False, at=0.0))
    for _ in range(BUSY_CHECKS_MAX):
        channel.received_since_check = True
        scene.receive(Opened(scene.id, OTHER, False), 4.0)
        assert channel.is_check_due(4.0 + limits.RESYNC_S)
        assert not scene.sent
        scene.side.verify([channel], scene.out, 4.0 + limits.RESYNC_S)
        assert isinstance(scene.sent.pop(), Open)
    channel.received_since_check = True
    scene.receive(Opened(scene.id, OTHER, False), 4.0)
    (shown,) = scene.sent
    assert isinstance(shown, Open)
    assert shown.heads is not None


def test_only_synchronized_conversations_are_verified(scene: Scene) -> None:
    channel = scene.channel()
    for state in SyncState:
        channel.state = state
        scene.side.verify([channel], scene.out, 0.0)
    assert scene.sent == []  # an ack is still expected
    channel.unacked.clear()
    for state in SyncState:
        channel.state = state
        scene.side.verify([channel], scene.out, 0.0)
    assert len(scene.sent) == 1


def test_entries_released_by_the_hubs_entries_are_not_acked(scene: Scene) -> None:
    """LINK-15: only entries the hub sent are held there; the others were pending here."""
    bob = Writer(2)
    grant = scene.ada.write(
        scene.id, Member(Grant(bob.public, Role.WRITER)), parents=[scene.genesis]
    )
    lost = bob.write(scene.id, said("lost here"), parents=scene.line[-1:])
    behind = scene.ada.write(scene.id, said("written here"), parents=[lost])
    stored = [*scene.line, grant, behind]
    scene.held = Conversation.restore(scene.id, stored, Lost(frozenset({lost.id})))
    scene.shelf.add(scene.held)
    channel = scene.channel(scene.genesis, grant)
    scene.receive(Entries(scene.id, (lost,)))
    assert scene.held.log.entries.keys() == {entry.id for entry in (*stored, lost)}
    assert channel.unacked == {entry.id for entry in (*scene.line[1:], behind)}
    assert [e for e in scene.out.deliver if isinstance(e, EntriesAcked)] == []
    assert acked_by(scene.out.deliver) == {scene.id: (lost.position,)}


def test_entries_that_release_none_cause_no_comparison(scene: Scene) -> None:
    channel = scene.channel(scene.line[-1])
    channel.state, channel.is_open = SyncState.SYNCHRONIZED, True
    channel.unacked.clear()
    news = scene.ada.write(scene.id, said("news"), parents=scene.line[-1:])
    scene.receive(Entries(scene.id, (news,)))
    assert news.id in scene.held.log.entries
    assert channel.recheck_at is None
    assert scene.sent == []


def test_a_conversation_equal_before_the_hub_opened_its_side_is_opened_again(scene: Scene) -> None:
    """LINK-12: entries of an Open before it arrive between a digest and its answer."""
    channel = scene.channel(*scene.line)
    scene.side.send_open(channel, scene.out, 0.0, with_heads=False)
    news = scene.ada.write(scene.id, said("news"), parents=scene.line[-1:])
    scene.receive(Entries(scene.id, (news,)))
    digest, heads = scene.held.log.digest, scene.held.log.heads()
    scene.receive(Opened(scene.id, digest, False, heads), 1.0)
    assert (channel.state, channel.is_open) == (SyncState.OPENING, False)
    assert scene.sent[-1] == Open(scene.id, digest, None, True, 2)
    scene.receive(Opened(scene.id, digest, True), 2.0)
    assert (channel.state, channel.is_open) == (SyncState.SYNCHRONIZED, True)


# --- rules of one step ---------------------------------------------------------------------


def test_the_first_unacked_entry_sets_the_recheck_and_later_ones_leave_it(scene: Scene) -> None:
    channel = scene.channel(scene.genesis, scene.line[-1])
    for now in (7.0, 9.0):
        parents = [scene.ada.last(scene.id) or scene.genesis]
        scene.side.append(scene.ada.write(scene.id, said("x"), parents=parents), scene.out, now)
    assert channel.recheck_at == 7.0 + limits.RESYNC_S


def test_an_open_replaces_a_comparison_that_was_put_off(scene: Scene) -> None:
    channel = scene.channel()
    channel.check_at = 1.0
    scene.side.send_open(channel, scene.out, 4.0, with_heads=True)
    assert channel.deadlines() == [4.0 + limits.RESYNC_S]


@pytest.mark.parametrize("is_unacked", [True, False])
def test_a_comparison_put_off_is_rechecked_only_for_unacked_entries(
    scene: Scene, is_unacked: bool
) -> None:
    channel = scene.channel(scene.genesis, scene.line[-1])
    channel.state, channel.is_open, channel.recheck_at = SyncState.SYNCHRONIZED, True, 3.0
    channel.opens.add(SentOpen(1, OTHER, with_heads=False, at=0.0))
    channel.received_since_check = True
    channel.unacked = {scene.line[-1].id} if is_unacked else set()
    scene.receive(Opened(scene.id, OTHER, False), 2.0)
    assert channel.check_at == 2.0 + limits.RESYNC_S
    assert channel.recheck_at == (3.0 if is_unacked else None)


def test_a_channel_reconciles_until_the_heads_of_the_hub_are_held(scene: Scene) -> None:
    channel = scene.channel(scene.genesis, scene.line[-1])
    scene.side.send_open(channel, scene.out, 0.0, with_heads=True)
    ahead = scene.ada.write(scene.id, said("ahead"), parents=scene.line[-1:])
    scene.receive(Opened(scene.id, OTHER, False, (scene.genesis.position, ahead.position)))
    assert channel.wanted == {ahead.id}
    assert channel.state is SyncState.RECONCILING
    scene.receive(Entries(scene.id, (ahead,)))
    assert channel.state is SyncState.SYNCHRONIZED


def test_a_complete_list_of_ids_that_are_all_held_here_synchronizes(scene: Scene) -> None:
    channel = scene.channel()
    channel.lists_due = {True}
    channel.state, channel.recheck_at = SyncState.RECONCILING, 3.0
    scene.receive(Ids(scene.id, tuple(sorted(scene.held.log.entries)), False, True))
    assert channel.state is SyncState.SYNCHRONIZED
    assert (channel.wanted, channel.unacked, channel.recheck_at) == (set(), set(), None)


def test_a_list_of_ids_without_ours_is_asked_about_later(scene: Scene) -> None:
    channel = scene.channel()
    channel.lists_due = {True}
    channel.state = SyncState.SYNCHRONIZED
    scene.receive(Ids(scene.id, (scene.genesis.id,), False, True), 2.0)
    assert channel.unacked == {entry.id for entry in scene.line[1:]}
    assert list(channel.outgoing.single) == [entry.id for entry in scene.line[1:]]
    assert channel.recheck_at == 2.0 + limits.RESYNC_S
    channel.lists_due = {True}
    scene.receive(Ids(scene.id, (scene.genesis.id,), False, True), 4.0)
    assert channel.recheck_at == 2.0 + limits.RESYNC_S


def test_a_list_of_ids_that_shows_all_acked_sets_no_recheck(scene: Scene) -> None:
    channel = scene.channel(scene.genesis, scene.line[-1])
    channel.lists_due = {True}
    channel.state = SyncState.SYNCHRONIZED
    scene.receive(Ids(scene.id, tuple(sorted(scene.held.log.entries)), False, True))
    assert channel.recheck_at is None


def test_a_seeding_sends_again_what_was_in_flight_and_is_rechecked(scene: Scene) -> None:
    channel = scene.channel()
    channel.in_flight = {entry.id for entry in scene.line}
    for now, expected in ((3.0, scene.line), (4.0, scene.line[:1])):
        assert seed(channel, scene.held, now)
        assert list(channel.outgoing.single) == [entry.id for entry in expected]
        channel.outgoing = Outgoing()
        channel.in_flight = {entry.id for entry in scene.line}
    assert channel.recheck_at == 4.0 + limits.RESYNC_S


def test_a_hub_that_opened_the_conversation_and_lost_it_again_is_given_all_of_it(
    scene: Scene,
) -> None:
    channel = scene.channel()
    for _ in range(2):
        scene.receive(scene.fault(ConversationUnknown()))
        assert list(channel.outgoing.single) == [entry.id for entry in scene.line]
        scene.side.send_open(channel, scene.out, 0.0, with_heads=True)
        scene.receive(Opened(scene.id, scene.held.log.digest, True))
        channel.outgoing = Outgoing()


def test_a_denied_channel_offers_the_membership_alone_from_then_on(scene: Scene) -> None:
    channel = scene.channel()
    channel.seedings = SEEDINGS_MAX
    scene.receive(scene.fault(ConversationUnknown()))
    assert (channel.state, channel.seedings) == (SyncState.DENIED, 1)


def test_entries_that_the_hub_lacks_are_sent_and_no_refusal(scene: Scene) -> None:
    channel = scene.channel()
    lacking = [entry.id for entry in scene.line[1:3]]
    scene.receive(scene.fault(EntriesMissing(missing=lacking)))
    assert list(channel.outgoing.single) == lacking
    assert channel.state is SyncState.OPENING


def test_ids_that_only_the_hub_holds_keep_a_channel_reconciling(scene: Scene) -> None:
    channel = scene.channel(scene.genesis, scene.line[-1])
    channel.lists_due = {True}
    channel.state = SyncState.RECONCILING
    ahead = scene.ada.write(scene.id, said("ahead"), parents=scene.line[-1:])
    scene.receive(Ids(scene.id, tuple(sorted([*scene.held.log.entries, ahead.id])), False, True))
    assert channel.wanted == {ahead.id}
    assert channel.state is SyncState.RECONCILING
