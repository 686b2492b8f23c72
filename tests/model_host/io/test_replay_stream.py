"""The events of a replay wait for their reader, and the replay does not."""

import asyncio

import pytest

from antiphon.v1 import host_pb2 as pb
from model_host.io.calls import replay_stream
from model_host.io.calls.replay_stream import ReplayStream
from replica.conversation import Finding, Outcome
from replica.ids import Digest, EntryId
from replica.io import ReplayEvent, ReplayProgress
from replica.io.calls.replays import event_from_pb
from replica.refusals import ConversationUnknown, SlowReader


class Reader:
    """A caller that reads nothing until it `goes_on`."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.is_written_to = asyncio.Event()
        self.seen: list[ReplayEvent | None] = []

    async def write(self, data: bytes) -> None:
        self.is_written_to.set()
        await self.goes_on.wait()
        self.seen.append(event_from_pb(pb.ReplayResponse.FromString(data)))


def allowed() -> None:
    """Let the caller read on."""


def finding(number: int) -> Finding:
    answer = EntryId(bytes([number]) * 32)
    return Finding(answer, answer, Digest(bytes(32)), Outcome.ACCEPTED)


async def test_events_are_written_in_order_with_the_latest_progress() -> None:
    reader, stream = Reader(), ReplayStream(lambda: None)
    writing = asyncio.create_task(stream.write_all(reader, allowed))
    events = [ReplayProgress(1, 9), finding(1), finding(2)]
    for event in (ReplayProgress(0, 9), *events, ReplayProgress(2, 9), ReplayProgress(3, 9)):
        stream.put(event)
    await reader.is_written_to.wait()
    reader.goes_on.set()
    stream.put(finding(3))
    stream.end()
    await writing
    assert reader.seen == [*events, ReplayProgress(3, 9), finding(3)]


async def test_a_stream_whose_caller_does_not_read_is_dropped_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_stream, "WRITE_TIMEOUT_S", 0.0)
    dropped = asyncio.Event()
    reader, stream = Reader(), ReplayStream(dropped.set)
    writing = asyncio.create_task(stream.write_all(reader, allowed))
    stream.put(finding(1))
    stream.put(finding(2))
    await dropped.wait()
    assert not writing.done()  # gRPC can't cancel a write
    reader.goes_on.set()
    with pytest.raises(SlowReader):
        await writing
    assert reader.seen == [finding(1)]


async def test_the_caller_is_checked_at_every_event() -> None:
    reader, stream, may_read = Reader(), ReplayStream(lambda: None), [True]

    def check() -> None:
        if not may_read[0]:
            raise ConversationUnknown

    writing = asyncio.create_task(stream.write_all(reader, check))
    stream.put(finding(1))
    stream.put(finding(2))
    await reader.is_written_to.wait()
    may_read[0] = False
    reader.goes_on.set()
    with pytest.raises(ConversationUnknown):
        await writing
    assert reader.seen == [finding(1)]


async def test_a_stream_may_be_dropped_for_another_one() -> None:
    drops = list[int]()
    stream = ReplayStream(lambda: drops.append(1))
    writing = asyncio.create_task(stream.write_all(Reader(), allowed))
    await asyncio.sleep(0)
    stream.drop()
    stream.drop()
    with pytest.raises(SlowReader):
        await writing
    assert drops == [1]
