"""One conversation on one link: queues, acks, and the state that is known (spec/04-link §4)."""

import sys
from dataclasses import replace

import pytest

from replica import limits
from replica.conversation.conversation import Conversation
from replica.conversation.drafts import DraftStream, Progress
from replica.ids import EntryId
from replica.link import channel as channels
from replica.link.channel import Channel
from replica.link.effects import EffectsBuilder
from replica.link.events import EntriesAcked, StateChanged, SyncState
from replica.link.messages import Entries, Fault, Ids
from replica.log.entry import Entry
from replica.refusals import QuotaExceeded
from tests.support.host_scene import RUN, HostScene
from tests.support.writers import Writer, said

ABSENT = EntryId(b"?" * 32)


class Line:
    """A conversation of a genesis and messages that follow it, and its channel."""

    def __init__(self, count: int = 4) -> None:
        ada = Writer(1)
        self.entries: list[Entry] = [ada.genesis()]
        self.id = self.entries[0].conversation
        for number in range(count):
            text = said(str(number))
            self.entries.append(ada.write(self.id, text, parents=self.entries[-1:]))
        self.held = Conversation.restore(self.id, self.entries)
        self.channel = Channel(self.id)
        self.ids = [entry.id for entry in self.entries]
        self.out = EffectsBuilder()

    def next(self, *, awaits_acks: bool = True):
        return self.channel.next_frame(self.held, awaits_acks=awaits_acks)


@pytest.fixture
def line() -> Line:
    return Line()


# --- sending ------------------------------------------------------------------------


def test_an_entry_is_queued_once_and_not_again_while_it_is_in_flight(line: Line) -> None:
    line.channel.queue([line.ids[1], line.ids[1]])
    assert list(line.channel.outgoing.single) == [line.ids[1]]
    assert line.next() == Entries(line.id, (line.entries[1],))
    line.channel.queue([line.ids[1]])
    assert not line.channel.is_due


def test_a_hub_expects_no_acks_and_may_send_an_entry_again(line: Line) -> None:
    line.channel.queue([line.ids[1]])
    line.next(awaits_acks=False)
    line.channel.queue([line.ids[1]])
    assert line.channel.is_due


def test_a_refused_entry_is_not_sent_again(line: Line) -> None:
    line.channel.unacked = {line.ids[1]}
    for one in (line.ids[1], ABSENT):
        line.channel.refuse(one, Fault.of(QuotaExceeded(), line.channel.id, one))
    assert (line.channel.unacked, line.channel.refused.keys()) == (set(), {line.ids[1]})
    line.channel.queue([line.ids[1]])
    assert not line.channel.is_due
    channels.offer_again(line.channel, [line.ids[1], ABSENT])
    line.channel.queue([line.ids[1]])
    assert line.channel.is_due


def test_frames_of_entries_are_cut_and_skip_what_is_gone(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "ENTRIES_FRAME_BYTES", line.entries[3].size_bytes + 1)
    line.channel.queue([ABSENT, *line.ids[1:]])
    assert line.next() == Entries(line.id, tuple(line.entries[1:3]))
    assert line.next() == Entries(line.id, tuple(line.entries[3:5]))
    assert line.next() is None


def test_ids_go_before_entries_in_chunks(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDS_PER_FRAME", 3)
    line.channel.queue([line.ids[1]])
    line.channel.queue_ids(line.held, answer=True)
    ids = tuple(line.ids)
    assert line.next() == Ids(line.id, ids[:3], True, True)
    assert line.next() == Ids(line.id, ids[3:], False, True)
    assert isinstance(line.next(), Entries)


def test_a_conversation_without_entries_has_one_empty_chunk_of_ids(line: Line) -> None:
    line.channel.queue_ids(Conversation(line.id), answer=False)
    assert list(line.channel.ids_due or ()) == [Ids(line.id, (), False, False)]


# --- receiving ids ------------------------------------------------------------------


def test_ids_count_once_their_last_chunk_is_here(line: Line) -> None:
    assert line.channel.collect_ids(line.ids[:2], more=True) is None
    assert line.channel.collect_ids(line.ids[2:], more=False) == set(line.ids)
    assert line.channel.collect_ids([], more=False) == set(), "it starts over"


def test_more_ids_than_can_be_kept_are_dropped(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDS_HELD_MAX", 2)
    assert line.channel.collect_ids(line.ids, more=True) is None
    assert line.channel.peer_ids == set()


# --- acks ---------------------------------------------------------------------------


def test_an_ack_covers_the_lane_up_to_its_entry(line: Line) -> None:
    line.channel.unacked = set(line.ids[1:])
    line.channel.in_flight = {line.ids[1]}
    acked = line.channel.mark_acked(line.held, [line.ids[2], ABSENT])
    assert acked == [line.entries[2].position]
    assert (line.channel.unacked, line.channel.in_flight) == (set(line.ids[3:]), set())
    assert line.channel.mark_acked(line.held, [line.ids[2]]) == [], "once"


def test_a_peers_entry_acks_what_it_follows_in_its_lane(line: Line) -> None:
    line.channel.unacked = set(line.ids[1:4])
    acked = line.channel.mark_acked(line.held, [line.ids[4]])
    assert acked == [line.entries[3].position]


def test_an_equal_log_acks_all(line: Line) -> None:
    line.channel.unacked = {*line.ids, ABSENT}
    line.channel.in_flight = {ABSENT}
    line.channel.mark_all_acked(line.held)
    assert (line.channel.unacked, line.channel.in_flight) == (set(), set())


def test_acks_are_delivered_and_end_the_wait_of_a_synchronized_channel(line: Line) -> None:
    line.channel.recheck_at = 9.0
    line.channel.deliver_acked([], line.out)
    assert (line.out.deliver, line.channel.recheck_at) == ([], 9.0)
    line.channel.state = SyncState.SYNCHRONIZED
    line.channel.deliver_acked([line.entries[1].position], line.out)
    assert line.out.deliver == [EntriesAcked(line.id, (line.entries[1].position,))]
    assert line.channel.recheck_at is None


# --- state --------------------------------------------------------------------------


def test_a_change_is_delivered_once(line: Line) -> None:
    line.channel.change(SyncState.DENIED, line.out)
    line.channel.change(SyncState.DENIED, line.out)
    assert line.out.deliver == [StateChanged(line.id, SyncState.DENIED)]


@pytest.mark.parametrize("state", [SyncState.RECONCILING, SyncState.DESYNCHRONIZED])
def test_with_nothing_unacked_or_wanted_a_compared_channel_is_synchronized(
    line: Line, state: SyncState
) -> None:
    line.channel.state, line.channel.recheck_at = state, 9.0
    line.channel.wanted = {ABSENT}
    line.channel.settle(line.out)
    assert line.channel.state is state
    line.channel.wanted.clear()
    line.channel.settle(line.out)
    assert (line.channel.state, line.channel.recheck_at) == (SyncState.SYNCHRONIZED, None)


@pytest.mark.parametrize("state", [SyncState.OPENING, SyncState.DENIED])
def test_a_channel_that_was_not_compared_does_not_settle(line: Line, state: SyncState) -> None:
    line.channel.state = state
    line.channel.settle(line.out)
    assert line.channel.state is state


def test_deadlines_are_due_at_their_time(line: Line) -> None:
    assert line.channel.deadlines() == []
    line.channel.recheck_at, line.channel.check_at = 5.0, 7.0
    assert line.channel.deadlines() == [5.0, 7.0]
    assert (line.channel.is_overdue(4.9), line.channel.is_overdue(5.0)) == (False, True)
    assert (line.channel.is_check_due(6.9), line.channel.is_check_due(7.0)) == (False, True)


# --- drafts -------------------------------------------------------------------------


@pytest.fixture
def scene() -> HostScene:
    return HostScene()


def reader_of(scene: HostScene, request: EntryId, count: int) -> tuple[Channel, DraftStream]:
    """Return a reader's channel, and a stream of this many frames."""
    stream = DraftStream(scene.id, request, RUN)
    for frame in scene.frames(request, [(n,) for n in range(count)]):
        stream.receive(frame)
    scene.held.drafts[request] = stream
    channel = Channel(scene.id, is_open=True, with_drafts=True)
    channel.drafts_due.add(request)
    return channel, stream


def frames_of(channel: Channel, scene: HostScene) -> list:
    found = []
    while (frame := channel.next_frame(scene.held, awaits_acks=False)) is not None:
        found.append(frame)
    return found


def test_a_reader_gets_each_frame_of_a_draft_once(scene: HostScene) -> None:
    request = scene.ask()
    channel, stream = reader_of(scene, request, 2)
    assert frames_of(channel, scene) == list(stream.frames)
    channel.drafts_due.add(request)
    assert frames_of(channel, scene) == []


def test_drafts_wait_until_the_channel_is_open_and_the_entries_are_sent(scene: HostScene) -> None:
    channel, stream = reader_of(scene, scene.ask(), 1)
    channel.is_open = False
    assert frames_of(channel, scene) == []
    channel.is_open = True
    channel.queue([scene.sealed.id])
    assert frames_of(channel, scene) == [Entries(scene.id, (scene.sealed,)), *stream.frames]


def test_forgotten_drafts_are_sent_from_their_beginning(scene: HostScene) -> None:
    request = scene.ask()
    channel, stream = reader_of(scene, request, 2)
    frames_of(channel, scene)
    channel.forget_drafts()
    channel.drafts_due.add(request)
    assert frames_of(channel, scene) == list(stream.frames)


def test_a_draft_that_has_ended_is_sent_no_more(scene: HostScene) -> None:
    request = scene.ask()
    channel, _ = reader_of(scene, request, 1)
    frames_of(channel, scene)
    del scene.held.drafts[request]
    channel.drafts_due.add(request)
    assert frames_of(channel, scene) == []


def test_a_reader_that_waits_for_credit_keeps_no_draft_that_has_ended(scene: HostScene) -> None:
    """Its frames are in no count of memory once the hub has dropped them."""
    request = scene.ask()
    channel, stream = reader_of(scene, request, 3)
    last, alone = stream.frames[-1], sys.getrefcount(object())
    assert channel.next_frame(scene.held, awaits_acks=False) == stream.frames[0]
    del scene.held.drafts[request], stream
    assert sys.getrefcount(last) == alone + 1, "nobody but this test holds it"
    assert frames_of(channel, scene) == []


def test_what_was_sent_of_a_draft_is_forgotten_after_it(scene: HostScene) -> None:
    request = scene.ask()
    channel, stream = reader_of(scene, request, 1)
    frames_of(channel, scene)
    del scene.held.drafts[request]
    following = EntryId(b"f" * 32)
    scene.held.drafts[following] = stream
    channel.drafts_due.add(following)
    assert frames_of(channel, scene) == list(stream.frames)
    assert set(channel.drafts_sent) == {following}


def test_each_progress_is_sent_once(scene: HostScene) -> None:
    request = scene.ask()
    channel, stream = reader_of(scene, request, 0)
    (frame,) = scene.frames(request, [()])
    progress = replace(frame, data=b"", progress=Progress(9, 0, 0, 3))
    assert stream.receive(progress)
    assert frames_of(channel, scene) == [progress]
