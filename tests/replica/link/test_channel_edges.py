"""One conversation on one link: entries queued, in flight, acked (spec/04-link §4)."""

import pytest

from replica import limits
from replica.conversation.conversation import Conversation
from replica.conversation.drafts import Draft, DraftStream, extend_digest
from replica.ids import EntryId
from replica.link import channel as channels
from replica.link.channel import Channel
from replica.link.effects import EffectsBuilder
from replica.link.events import EntriesAcked, StateChanged, SyncState
from replica.link.messages import Entries, Ids
from replica.log.entry import Entry
from tests.support.sample import Sample


class Desk:
    """A channel of a conversation with a genesis and a lane of four messages."""

    def __init__(self) -> None:
        self.sample = Sample()
        self.lane = self.sample.chain(4)
        self.sample.add(*self.lane)
        self.channel = Channel(self.sample.id)
        self.out = EffectsBuilder()

    @property
    def held(self) -> Conversation:
        return self.sample.held

    def next_ids(self) -> list[EntryId]:
        frame = self.channel.next_frame(self.held, awaits_acks=True)
        assert isinstance(frame, Entries)
        return [entry.id for entry in frame.entries]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def _ids(*entries: Entry) -> list[EntryId]:
    return [entry.id for entry in entries]


# --- sending ------------------------------------------------------------------------


def test_an_entry_is_queued_once_and_not_again_while_it_is_in_flight(desk: Desk) -> None:
    desk.channel.queue(_ids(desk.lane[0], desk.lane[0]))
    desk.channel.queue(_ids(*desk.lane[:2]))
    assert desk.next_ids() == _ids(*desk.lane[:2])
    desk.channel.queue(_ids(*desk.lane[:3]))
    assert desk.next_ids() == [desk.lane[2].id]


def test_entries_are_in_flight_only_where_acks_come(desk: Desk) -> None:
    desk.channel.queue(_ids(desk.lane[0]))
    desk.channel.next_frame(desk.held, awaits_acks=False)
    assert not desk.channel.in_flight
    desk.channel.queue(_ids(desk.lane[0]))
    desk.channel.next_frame(desk.held, awaits_acks=True)
    assert desk.channel.in_flight == {desk.lane[0].id}


def test_an_entry_that_is_held_no_more_is_not_sent(desk: Desk) -> None:
    desk.channel.queue([EntryId(bytes(32)), desk.lane[0].id])
    assert desk.next_ids() == [desk.lane[0].id]


def test_a_frame_ends_with_the_entry_that_fills_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = desk.lane[0].size_bytes + desk.lane[1].size_bytes
    monkeypatch.setattr(channels, "ENTRIES_FRAME_BYTES", size)
    desk.channel.queue(_ids(*desk.lane))
    assert desk.next_ids() == _ids(*desk.lane[:2])
    assert desk.next_ids() == _ids(*desk.lane[2:])


def test_only_an_unacked_entry_can_be_refused(desk: Desk) -> None:
    first, second = desk.lane[:2]
    desk.channel.unacked.add(first.id)
    desk.channel.refuse(first.id)
    desk.channel.refuse(second.id)
    desk.channel.queue(_ids(first, second))
    assert list(desk.channel.outgoing) == [second.id]
    assert not desk.channel.unacked


def test_ids_go_before_entries_in_frames_of_a_bounded_number(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDS_PER_FRAME", 2)
    desk.channel.queue(_ids(desk.lane[0]))
    desk.channel.queue_ids(desk.held, answer=True)
    frames = [desk.channel.next_frame(desk.held, awaits_acks=True) for _ in range(4)]
    lists = [frame for frame in frames[:3] if isinstance(frame, Ids)]
    assert [(len(f.ids), f.more, f.answer) for f in lists] == [
        (2, True, True),
        (2, True, True),
        (1, False, True),
    ]
    assert sorted(desk.held.log.entries) == [i for f in lists for i in f.ids]
    assert isinstance(frames[3], Entries)


def test_an_empty_list_of_ids_is_one_frame() -> None:
    channel = Channel(Sample().id)
    channel.queue_ids(Conversation(channel.id), answer=False)
    assert list(channel.ids_due) == [Ids(channel.id, (), False, False)]


# --- acks ---------------------------------------------------------------------------


@pytest.mark.parametrize("backwards", [False, True])
def test_an_ack_of_a_lane_is_its_newest_position_whatever_the_order_of_the_ids(
    desk: Desk, backwards: bool
) -> None:
    desk.channel.unacked = set(_ids(*desk.lane))
    named = desk.lane[:3][:: -1 if backwards else 1]
    assert desk.channel.mark_acked(desk.held, _ids(*named)) == [desk.lane[2].position]
    assert desk.channel.unacked == {desk.lane[3].id}


def test_an_acked_entry_is_in_flight_no_more(desk: Desk) -> None:
    desk.channel.unacked = set(_ids(*desk.lane))
    desk.channel.queue(_ids(*desk.lane))
    desk.next_ids()
    desk.channel.mark_acked(desk.held, _ids(desk.lane[1]))
    assert desk.channel.in_flight == set(_ids(*desk.lane[2:]))


def test_an_unknown_id_acks_nothing(desk: Desk) -> None:
    desk.channel.unacked = set(_ids(*desk.lane))
    assert desk.channel.mark_acked(desk.held, [EntryId(bytes(32))]) == []
    assert len(desk.channel.unacked) == 4


def test_equal_digests_leave_nothing_unacked_and_nothing_in_flight(desk: Desk) -> None:
    sent_again, stray = desk.lane[0].id, EntryId(bytes(32))
    desk.channel.unacked = {desk.lane[3].id, stray}
    desk.channel.in_flight = {sent_again, desk.lane[3].id}
    assert desk.channel.mark_all_acked(desk.held) == [desk.lane[3].position]
    assert not desk.channel.unacked
    assert not desk.channel.in_flight


@pytest.mark.parametrize(
    ("state", "is_unacked", "recheck_at"),
    [
        (SyncState.SYNCHRONIZED, False, None),
        (SyncState.SYNCHRONIZED, True, 5.0),
        (SyncState.RECONCILING, False, 5.0),
    ],
)
def test_a_synchronized_channel_is_not_compared_again_once_all_is_acked(
    desk: Desk, state: SyncState, is_unacked: bool, recheck_at: float | None
) -> None:
    desk.channel.state, desk.channel.recheck_at = state, 5.0
    desk.channel.unacked = {desk.lane[0].id} if is_unacked else set()
    desk.channel.deliver_acked([desk.lane[1].position], desk.out)
    assert desk.channel.recheck_at == recheck_at
    assert desk.out.deliver == [EntriesAcked(desk.channel.id, (desk.lane[1].position,))]


def test_no_ack_is_no_event(desk: Desk) -> None:
    desk.channel.deliver_acked([], desk.out)
    assert desk.out.deliver == []


# --- states and deadlines -------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "unacked", "wanted", "settles"),
    [
        (SyncState.RECONCILING, 0, 0, True),
        (SyncState.DESYNCHRONIZED, 0, 0, True),
        (SyncState.RECONCILING, 1, 0, False),
        (SyncState.RECONCILING, 0, 1, False),
        (SyncState.OPENING, 0, 0, False),
        (SyncState.DENIED, 0, 0, False),
    ],
)
def test_a_channel_settles_once_neither_side_lacks_an_entry(
    desk: Desk, state: SyncState, unacked: int, wanted: int, settles: bool
) -> None:
    channel = desk.channel
    channel.state, channel.recheck_at = state, 5.0
    channel.unacked = set(_ids(*desk.lane[:unacked]))
    channel.wanted = set(_ids(*desk.lane[:wanted]))
    channel.settle(desk.out)
    assert channel.state is (SyncState.SYNCHRONIZED if settles else state)
    assert (channel.recheck_at is None) == settles
    changed = [StateChanged(channel.id, SyncState.SYNCHRONIZED)] if settles else []
    assert desk.out.deliver == changed


def test_a_deadline_is_due_at_its_time_and_not_before(desk: Desk) -> None:
    channel = desk.channel
    assert not channel.deadlines()
    assert not channel.is_overdue(9.0)
    assert not channel.is_check_due(9.0)
    channel.recheck_at, channel.check_at = 5.0, 7.0
    assert sorted(channel.deadlines()) == [5.0, 7.0]
    assert [channel.is_overdue(now) for now in (4.9, 5.0, 5.1)] == [False, True, True]
    assert [channel.is_check_due(now) for now in (6.9, 7.0, 7.1)] == [False, True, True]


# --- ids of the peer --------------------------------------------------------------------


def test_the_ids_of_a_peer_are_complete_with_the_last_list(desk: Desk) -> None:
    first, second, third = _ids(*desk.lane[:3])
    assert desk.channel.collect_ids([first, second], more=True) is None
    assert desk.channel.collect_ids([third], more=False) == {first, second, third}
    assert desk.channel.collect_ids([third], more=False) == {third}


@pytest.mark.parametrize(("held_max", "complete"), [(3, True), (2, False)])
def test_more_ids_of_a_peer_than_the_limit_are_dropped(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, held_max: int, complete: bool
) -> None:
    monkeypatch.setattr(channels, "IDS_HELD_MAX", held_max)
    ids = _ids(*desk.lane[:3])
    assert desk.channel.collect_ids(ids, more=False) == (set(ids) if complete else None)
    assert not desk.channel.peer_ids


# --- drafts -----------------------------------------------------------------------------


def _drafts(desk: Desk, *data: bytes) -> list[Draft]:
    """Stream one token with each piece of text to readers of the last message."""
    request = desk.lane[3].id
    stream = desk.held.drafts.setdefault(request, DraftStream(desk.held.id, request, 1))
    added = []
    for piece in data:
        digest = extend_digest(stream.digest, (7,))
        at = (stream.token_count, (7,), stream.byte_count)
        added.append(Draft(desk.held.id, request, 1, *at, piece, digest))
        assert stream.receive(added[-1])
    desk.channel.drafts_due.add(request)
    return added


def _sent(desk: Desk, count: int = 9) -> list[object]:
    frames = (desk.channel.next_frame(desk.held, awaits_acks=False) for _ in range(count))
    return [frame for frame in frames if frame is not None]


def test_a_draft_waits_until_the_channel_is_open_and_is_sent_once(desk: Desk) -> None:
    first = _drafts(desk, b"a", b"b")
    assert _sent(desk) == []
    desk.channel.is_open = True
    assert _sent(desk) == first
    assert _sent(desk) == []
    assert _drafts(desk, b"c") == _sent(desk)


def test_a_token_without_text_is_sent_once_too(desk: Desk) -> None:
    desk.channel.is_open = True
    drafts = _drafts(desk, b"a", b"")
    assert _sent(desk) == drafts
    desk.channel.drafts_due.add(drafts[0].request)
    assert _sent(desk) == []


def test_entries_go_before_drafts(desk: Desk) -> None:
    desk.channel.is_open = True
    drafts = _drafts(desk, b"a")
    desk.channel.queue(_ids(desk.lane[3]))
    assert _sent(desk) == [Entries(desk.held.id, (desk.lane[3],)), *drafts]


def test_drafts_that_are_forgotten_are_all_sent_again_each_once(desk: Desk) -> None:
    desk.channel.is_open = True
    drafts = _drafts(desk, b"a", b"b", b"c")
    assert _sent(desk, 1) == drafts[:1], "the others wait for credit"
    assert desk.channel.is_due
    desk.channel.forget_drafts()
    desk.channel.drafts_due.add(drafts[0].request)
    assert _sent(desk) == drafts


def test_a_draft_of_another_run_is_sent_from_its_start(desk: Desk) -> None:
    desk.channel.is_open = True
    drafts = _drafts(desk, b"a", b"b")
    _sent(desk)
    again = DraftStream(desk.held.id, drafts[0].request, 2)
    digest = extend_digest(again.digest, (7,))
    restarted = Draft(desk.held.id, drafts[0].request, 2, 0, (7,), 0, b"z", digest)
    assert again.receive(restarted)
    desk.held.drafts[drafts[0].request] = again
    desk.channel.drafts_due.add(drafts[0].request)
    assert _sent(desk) == [restarted]


def test_a_draft_that_ended_is_sent_no_more(desk: Desk) -> None:
    desk.channel.is_open = True
    _drafts(desk, b"a")
    desk.held.drafts.clear()
    assert _sent(desk) == []
    assert not desk.channel.is_due
