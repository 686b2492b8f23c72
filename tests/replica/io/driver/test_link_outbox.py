"""The frames of a client's link that are still to be written."""

import asyncio

import pytest

from replica import limits
from replica.ids import ConversationId, Digest
from replica.io.driver.link_outbox import LinkOutbox
from replica.link.frame import Frame
from replica.link.messages import Credit, Message, Open, Ping
from replica.refusals import SlowReader

ONE, OTHER = ConversationId(b"1" * 32), ConversationId(b"2" * 32)


class Stream:
    """A stream that notes what is written, and ends after `count` frames."""

    def __init__(self, count: int) -> None:
        self.written: list[bytes] = []
        self._count = count

    async def write(self, data: bytes) -> None:
        self.written.append(data)
        if len(self.written) == self._count:
            raise EOFError


def data(*messages: Message) -> list[bytes]:
    return [Frame.of(message, "to_hub").data for message in messages]


async def written(outbox: LinkOutbox, count: int) -> list[bytes]:
    stream = Stream(count)
    with pytest.raises(EOFError):
        await outbox.write_all(stream)  # type: ignore[arg-type]  # it only writes
    return stream.written


async def test_frames_are_written_in_order_also_those_that_come_later() -> None:
    outbox = LinkOutbox()
    for message in (Ping(1), Credit(2)):
        outbox.put(Frame.of(message, "to_hub"))
    assert await written(outbox, 2) == data(Ping(1), Credit(2))
    writing = asyncio.create_task(written(outbox, 1))
    await asyncio.sleep(0)
    outbox.put(Frame.of(Ping(3), "to_hub"))
    assert await writing == data(Ping(3))
    assert len(outbox) == 0


async def test_of_each_conversation_the_newest_open_alone_waits() -> None:
    outbox = LinkOutbox()
    first, later = (Open(ONE, Digest(one * 32)) for one in (b"a", b"b"))
    other = Open(OTHER, Digest(b"c" * 32))
    for message in (first, Ping(1), other, later):
        outbox.put(Frame.of(message, "to_hub"))
    assert await written(outbox, 3) == data(Ping(1), other, later)
    outbox.put(Frame.of(first, "to_hub"))  # the one before is no longer here
    assert await written(outbox, 1) == data(first)


async def test_more_than_the_bound_ends_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OUTBOX_BYTES_MAX", 10_000)
    outbox = LinkOutbox()
    for number in range(1_000):
        outbox.put(Frame.of(Open(ConversationId(number.to_bytes(32)), Digest(b"d" * 32)), "to_hub"))
    full = asyncio.create_task(outbox.full())
    await asyncio.sleep(0)
    assert not full.done()
    for _ in range(100):
        outbox.put(Frame.of(Credit(1), "to_hub"))
    with pytest.raises(SlowReader, match="reads less"):
        await full
    assert len(outbox) == 0
    outbox.put(Frame.of(Credit(1), "to_hub"))
    assert len(outbox) == 0


async def test_what_is_written_no_longer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OUTBOX_BYTES_MAX", 10_000)
    outbox = LinkOutbox()
    for _ in range(100):
        outbox.put(Frame.of(Credit(1), "to_hub"))
        assert len(outbox) == 1  # beyond the bound it would be dropped
        assert await written(outbox, 1) == data(Credit(1))
