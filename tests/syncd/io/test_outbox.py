"""The queue of one stream is counted in the bytes that will be written."""

import asyncio

import pytest

from replica import limits
from replica.ids import ConversationId, EntryId, Lane, Position, PublicKey
from replica.limits import OUTBOX_MESSAGES_MAX
from replica.link.frame import Frame
from replica.link.messages import Ack, Close, Fault, Pong
from replica.refusals import RateLimited, SlowReader
from syncd.io.outbox import LOW_WATER_BYTES, Item, Outbox
from syncd.links.hint import Hint, OwnHead

CONVERSATION = ConversationId(bytes(32))


class Stream:
    """An outbox, and the number of calls of `on_stall`; it notes what it writes."""

    def __init__(self) -> None:
        self.stalls = 0
        self.sizes: list[int] = []
        self.outbox = Outbox(self._on_stall, self.sizes.append)
        self.written: list[bytes] = []
        self.has_written = asyncio.Event()
        self.may_write = asyncio.Event()
        self.may_write.set()

    def _on_stall(self) -> None:
        self.stalls += 1

    def put(self, item: Item, times: int) -> None:
        for _ in range(times):
            self.outbox.put(item)

    async def write(self, data: bytes) -> None:
        self.written.append(data)
        self.has_written.set()
        await self.may_write.wait()

    async def write_all(self) -> None:
        await self.outbox.write_all(self, lambda item: item.data)  # type: ignore[arg-type, union-attr]


async def after_a_write(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let time pass for the event loop until what was due in it has been done."""
    loop, passed = asyncio.get_running_loop(), asyncio.Event()
    loop.call_later(seconds, passed.set)
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + seconds)
    await passed.wait()


async def test_a_frame_counts_with_its_bytes() -> None:
    stream = Stream()
    ids = tuple(EntryId(n.to_bytes(32, "big")) for n in range(limits.IDS_PER_FRAME))
    frame = Frame.of(Ack(CONVERSATION, ids), "to_client")
    fitting = limits.OUTBOX_BYTES_MAX // len(frame.data)
    stream.put(frame, fitting)
    assert stream.stalls == 0
    stream.put(frame, 1)
    assert stream.stalls == 1


async def test_many_small_frames_are_bounded_by_their_number() -> None:
    stream = Stream()
    frame = Frame.of(Pong(1), "to_client")
    stream.put(frame, OUTBOX_MESSAGES_MAX)
    assert stream.stalls == 0
    stream.put(frame, 1)
    assert stream.stalls == 1


async def test_many_hints_are_bounded_by_their_number() -> None:
    stream = Stream()
    hint = Hint(CONVERSATION, None, (), 0, (), ())
    stream.put(hint, OUTBOX_MESSAGES_MAX + 1)
    assert stream.stalls == 1


async def test_a_hint_counts_with_the_lanes_of_its_reader() -> None:
    """A key may have many lanes, and each append makes a hint that names all of them."""
    stream = Stream()
    head = OwnHead(Position(Lane(PublicKey(bytes(32)), 0, 1), 0, EntryId(bytes(32))), 1)
    heads = (head,) * limits.LANES_PER_KEY_MAX
    hint = Hint(CONVERSATION, None, (), 0, heads, ())
    stream.put(hint, limits.OUTBOX_BYTES_MAX // (64 * limits.LANES_PER_KEY_MAX))
    assert stream.stalls == 1


async def test_a_stalled_outbox_accepts_nothing_more() -> None:
    stream = Stream()
    stream.put(Frame.of(Pong(1), "to_client"), 2 * OUTBOX_MESSAGES_MAX)
    assert stream.stalls == 1


async def test_a_stream_that_has_nothing_to_write_is_not_stalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, frame = Stream(), Frame.of(Pong(1), "to_client")
    writing = asyncio.create_task(stream.write_all())
    stream.put(frame, 1)
    await stream.has_written.wait()
    await asyncio.sleep(0)  # the write ends
    await after_a_write(monkeypatch, limits.WRITE_TIMEOUT_S + 1)
    assert stream.stalls == 0
    stream.put(frame, 1)
    stream.outbox.put(None)
    await writing
    assert stream.written == [frame.data] * 2


async def test_a_write_that_takes_too_long_stalls_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream()
    stream.may_write.clear()
    writing = asyncio.create_task(stream.write_all())
    stream.put(Frame.of(Pong(1), "to_client"), 2)
    await stream.has_written.wait()
    await after_a_write(monkeypatch, limits.WRITE_TIMEOUT_S + 1)
    assert stream.stalls == 1
    stream.may_write.set()
    with pytest.raises(SlowReader):
        await writing
    assert len(stream.written) == 1


async def test_a_dropped_stream_ends_with_its_error_in_place_of_what_is_queued() -> None:
    stream = Stream()
    stream.put(Frame.of(Pong(1), "to_client"), 2)
    stream.outbox.drop(RateLimited())
    await stream.write_all()
    (frame,) = stream.written
    assert frame == Frame.of(Close(None, Fault.of(RateLimited())), "to_client").data
    assert stream.stalls == 1


async def test_nothing_is_read_while_much_is_queued() -> None:
    stream = Stream()
    ids = tuple(EntryId(n.to_bytes(32, "big")) for n in range(limits.IDS_PER_FRAME))
    frame = Frame.of(Ack(CONVERSATION, ids), "to_client")
    stream.put(frame, LOW_WATER_BYTES // len(frame.data))
    await stream.outbox.drained()
    stream.put(frame, 1)
    reading = asyncio.create_task(stream.outbox.drained())
    await asyncio.sleep(0)
    assert not reading.done()
    stream.outbox.put(None)
    await stream.write_all()
    await reading


async def test_an_empty_queue_is_always_reported() -> None:
    """The memory of a stream that waits counts as none, however little was written last."""
    stream = Stream()
    ids = tuple(EntryId(n.to_bytes(32, "big")) for n in range(40))
    long, short = Frame.of(Ack(CONVERSATION, ids), "to_client"), Frame.of(Pong(1), "to_client")
    stream.put(long, 1)
    stream.put(short, 1)
    stream.outbox.put(None)
    await stream.write_all()
    assert stream.sizes == [len(long.data), len(short.data), 0]
