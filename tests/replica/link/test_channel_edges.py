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
from replica.link.messages import Entries, Fault, Ids
from replica.log.entry import Entry
from replica.refusals import QuotaExceeded
from tests.support.sample import Sample


class Scene:
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
def scene() -> Scene:
    return Scene()


def _ids(*entries: Entry) -> list[EntryId]:
    return [entry.id for entry in entries]


# --- sending ------------------------------------------------------------------------


def test_an_entry_is_queued_once_and_not_again_while_it_is_in_flight(scene: Scene) -> None:
    scene.channel.queue(_ids(scene.lane[0], scene.lane[0]))
    scene.channel.queue(_ids(*scene.lane[:2]))
    assert scene.next_ids() == _ids(*scene.lane[:2])
    scene.channel.queue(_ids(*scene.lane[:3]))
    assert scene.next_ids() == [scene.lane[2].id]


def test_entries_are_in_flight_only_where_acks_come(scene: Scene) -> None:
    scene.channel.queue(_ids(scene.lane[0]))
    scene.channel.next_frame(scene.held, awaits_acks=False)
    assert not scene.channel.in_flight
    scene.channel.queue(_ids(scene.lane[0]))
    scene.channel.next_frame(scene.held, awaits_acks=True)
    assert scene.channel.in_flight == {scene.lane[0].id}


def test_an_entry_that_is_held_no_more_is_not_sent(scene: Scene) -> None:
    scene.channel.queue([EntryId(bytes(32)), scene.lane[0].id])
    assert scene.next_ids() == [scene.lane[0].id]


def test_a_frame_ends_with_the_entry_that_fills_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = scene.lane[0].size_bytes + scene.lane[1].size_bytes
    monkeypatch.setattr(channels, "ENTRIES_FRAME_BYTES", size)
    scene.channel.queue(_ids(*scene.lane))
    assert scene.next_ids() == _ids(*scene.lane[:2])
    assert scene.next_ids() == _ids(*scene.lane[2:])


def test_only_an_unacked_entry_can_be_refused(scene: Scene) -> None:
    first, second = scene.lane[:2]
    scene.channel.unacked.add(first.id)
    for one in (first, second):
        scene.channel.refuse(one.id, Fault.of(QuotaExceeded(), scene.channel.id, one.id))
    scene.channel.queue(_ids(first, second))
    assert list(scene.channel.outgoing.single) == [second.id]
    assert not scene.channel.unacked


def test_ids_go_before_entries_in_frames_of_a_bounded_number(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IDS_PER_FRAME", 2)
    scene.channel.queue(_ids(scene.lane[0]))
    scene.channel.queue_ids(scene.held, answer=True)
    frames = [scene.channel.next_frame(scene.held, awaits_acks=True) for _ in range(4)]
    lists = [frame for frame in frames[:3] if isinstance(frame, Ids)]
    assert [(len(f.ids), f.more, f.answer) for f in lists] == [
        (2, True, True),
        (2, True, True),
        (1, False, True),
    ]
    assert sorted(scene.held.log.entries) == sorted(i for f in lists for i in f.ids)
    assert isinstance(frames[3], Entries)


def test_an_empty_list_of_ids_is_one_frame() -> None:
    channel = Channel(Sample().id)
    channel.queue_ids(Conversation(channel.id), answer=False)
    assert list(channel.ids_due or ()) == [Ids(channel.id, (), False, False)]


# --- acks ---------------------------------------------------------------------------


@pytest.mark.parametrize("backwards", [False, True])
def test_an_ack_of_a_lane_is_its_newest_position_whatever_the_order_of_the_ids(
    scene: Scene, backwards: bool
) -> None:
    scene.channel.unacked = set(_ids(*scene.lane))
    named = scene.lane[:3][:: -1 if backwards else 1]
    assert scene.channel.mark_acked(scene.held, _ids(*named)) == [scene.lane[2].position]
    assert scene.channel.unacked == {scene.lane[3].id}


def test_an_acked_entry_is_in_flight_no_more(scene: Scene) -> None:
    scene.channel.unacked = set(_ids(*scene.lane))
    scene.channel.queue(_ids(*scene.lane))
    scene.next_ids()
    scene.channel.mark_acked(scene.held, _ids(scene.lane[1]))
    assert scene.channel.in_flight == set(_ids(*scene.lane[2:]))


def test_an_unknown_id_acks_nothing(scene: Scene) -> None:
    scene.channel.unacked = set(_ids(*scene.lane))
    assert scene.channel.mark_acked(scene.held, [EntryId(bytes(32))]) == []
    assert len(scene.channel.unacked) == 4


def test_equal_digests_leave_nothing_unacked_and_nothing_in_flight(scene: Scene) -> None:
    sent_again, stray = scene.lane[0].id, EntryId(bytes(32))
    scene.channel.unacked = {scene.lane[3].id, stray}
    scene.channel.in_flight = {sent_again, scene.lane[3].id}
    assert scene.channel.mark_all_acked(scene.held) == [scene.lane[3].position]
    assert not scene.channel.unacked
    assert not scene.channel.in_flight


@pytest.mark.parametrize(
    ("state", "is_unacked", "recheck_at"),
    [
        (SyncState.SYNCHRONIZED, False, None),
        (SyncState.SYNCHRONIZED, True, 5.0),
        (SyncState.RECONCILING, False, 5.0),
    ],
)
def test_a_synchronized_channel_is_not_compared_again_once_all_is_acked(
    scene: Scene, state: SyncState, is_unacked: bool, recheck_at: float | None
) -> None:
    scene.channel.state, scene.channel.recheck_at = state, 5.0
    scene.channel.unacked = {scene.lane[0].id} if is_unacked else set()
    scene.channel.deliver_acked([scene.lane[1].position], scene.out)
    assert scene.channel.recheck_at == recheck_at
    assert scene.out.deliver == [EntriesAcked(scene.channel.id, (scene.lane[1].position,))]


def test_no_ack_is_no_event(scene: Scene) -> None:
    scene.channel.deliver_acked([], scene.out)
    assert scene.out.deliver == []


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
    scene: Scene, state: SyncState, unacked: int, wanted: int, settles: bool
) -> None:
    channel = scene.channel
    channel.state, channel.recheck_at = state, 5.0
    channel.unacked = set(_ids(*scene.lane[:unacked]))
    channel.wanted = set(_ids(*scene.lane[:wanted]))
    channel.settle(scene.out)
    assert channel.state is (SyncState.SYNCHRONIZED if settles else state)
    assert (channel.recheck_at is None) == settles
    changed = [StateChanged(channel.id, SyncState.SYNCHRONIZED)] if settles else []
    assert scene.out.deliver == changed


def test_a_deadline_is_due_at_its_time_and_not_before(scene: Scene) -> None:
    channel = scene.channel
    assert not channel.deadlines()
    assert not channel.is_overdue(9.0)
    assert not channel.is_check_due(9.0)
    channel.recheck_at, channel.check_at = 5.0, 7.0
    assert sorted(channel.deadlines()) == [5.0, 7.0]
    assert [channel.is_overdue(now) for now in (4.9, 5.0, 5.1)] == [False, True, True]
    assert [channel.is_check_due(now) for now in (6.9, 7.0, 7.1)] == [False, True, True]


# --- ids of the peer --------------------------------------------------------------------


def test_the_ids_of_a_peer_are_complete_with_the_last_list(scene: Scene) -> None:
    first, second, third = _ids(*scene.lane[:3])
    assert scene.channel.collect_ids([first, second], more=True) is None
    assert scene.channel.collect_ids([third], more=False) == {first, second, third}
    assert scene.channel.collect_ids([third], more=False) == {third}


@pytest.mark.parametrize(("held_max", "complete"), [(3, True), (2, False)])
def test_more_ids_of_a_peer_than_the_limit_are_dropped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, held_max: int, complete: bool
) -> None:
    monkeypatch.setattr(limits, "IDS_HELD_MAX", held_max)
    ids = _ids(*scene.lane[:3])
    assert scene.channel.collect_ids(ids, more=False) == (set(ids) if complete else None)
    assert not scene.channel.peer_ids


# --- drafts -----------------------------------------------------------------------------


def _drafts(scene: Scene, *data: bytes) -> list[Draft]:
    """Stream one token with each piece of text to readers of the last message."""
    request = scene.lane[3].id
    stream = scene.held.drafts.setdefault(request, DraftStream(scene.held.id, request, 1))
    added = []
    for piece in data:
        digest = extend_digest(stream.digest, (7,))
        at = (stream.token_count, (7,), stream.byte_count)
        added.append(Draft(scene.held.id, request, 1, *at, piece, digest))
        assert stream.receive(added[-1])
    scene.channel.drafts_due.add(request)
    return added


def _sent(scene: Scene, count: int = 9) -> list[object]:
    frames = (scene.channel.next_frame(scene.held, awaits_acks=False) for _ in range(count))
    return [frame for frame in frames if frame is not None]


def test_a_draft_waits_until_the_channel_is_open_and_is_sent_once(scene: Scene) -> None:
    first = _drafts(scene, b"a", b"b")
    assert _sent(scene) == []
    scene.channel.is_open = True
    assert _sent(scene) == first
    assert _sent(scene) == []
    assert _drafts(scene, b"c") == _sent(scene)


def test_a_token_without_text_is_sent_once_too(scene: Scene) -> None:
    scene.channel.is_open = True
    drafts = _drafts(scene, b"a", b"")
    assert _sent(scene) == drafts
    scene.channel.drafts_due.add(drafts[0].request)
    assert _sent(scene) == []


def test_entries_go_before_drafts(scene: Scene) -> None:
    scene.channel.is_open = True
    drafts = _drafts(scene, b"a")
    scene.channel.queue(_ids(scene.lane[3]))
    assert _sent(scene) == [Entries(scene.held.id, (scene.lane[3],)), *drafts]


def test_drafts_that_are_forgotten_are_all_sent_again_each_once(scene: Scene) -> None:
    scene.channel.is_open = True
    drafts = _drafts(scene, b"a", b"b", b"c")
    assert _sent(scene, 1) == drafts[:1], "the others wait for credit"
    assert scene.channel.is_due
    scene.channel.forget_drafts()
    scene.channel.drafts_due.add(drafts[0].request)
    assert _sent(scene) == drafts


def test_a_draft_of_another_run_is_sent_from_its_start(scene: Scene) -> None:
    scene.channel.is_open = True
    drafts = _drafts(scene, b"a", b"b")
    _sent(scene)
    again = DraftStream(scene.held.id, drafts[0].request, 2)
    digest = extend_digest(again.digest, (7,))
    restarted = Draft(scene.held.id, drafts[0].request, 2, 0, (7,), 0, b"z", digest)
    assert again.receive(restarted)
    scene.held.drafts[drafts[0].request] = again
    scene.channel.drafts_due.add(drafts[0].request)
    assert _sent(scene) == [restarted]


def test_a_draft_that_ended_is_sent_no_more(scene: Scene) -> None:
    scene.channel.is_open = True
    _drafts(scene, b"a")
    scene.held.drafts.clear()
    assert _sent(scene) == []
    assert not scene.channel.is_due
