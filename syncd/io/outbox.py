"""The bounded queue of one stream, and its writer (spec/04-link §4).

A write blocks while the peer does not read, and gRPC can't cancel it. The link
of a stalled peer is dropped at once (DECISIONS D35), and the call ends with the
reason when the peer reads again. Sizes are those of the bytes written
(DECISIONS D28).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from replica import limits
from replica.errors import AntiphonError
from replica.io import rpc
from replica.link import Close, Fault, Frame
from replica.refusals import SlowReader
from syncd.hint import Hint

OUTBOX_MESSAGES_MAX = 20_000
LOW_WATER_BYTES = limits.OUTBOX_BYTES_MAX // 4
"""While more bytes than these are queued, no frames are read from the peer."""
_HINT_BYTES = 256
"""Approximate size of a hint, which is encoded only when it is written."""

Item = Frame | Hint


def _size(item: Item) -> int:
    return len(item.data) if isinstance(item, Frame) else _HINT_BYTES


class Outbox:
    """The queue of one stream, in order; `put` never blocks the performer."""

    def __init__(self, on_stall: Callable[[], None]) -> None:
        """Start empty; `on_stall` is called once, if the peer does not read."""
        self._queue: asyncio.Queue[Item | None] = asyncio.Queue()
        self._bytes = 0
        self._is_drained = asyncio.Event()
        self._is_drained.set()
        self._is_stalled = False
        self._on_stall = on_stall

    def put(self, item: Item | None) -> None:
        """Queue an item; None ends the stream."""
        if self._is_stalled:
            return
        self._queue.put_nowait(item)
        self._count(_size(item) if item is not None else 0)
        if self._bytes > limits.OUTBOX_BYTES_MAX or self._queue.qsize() > OUTBOX_MESSAGES_MAX:
            self._stall()

    def end(self, error: AntiphonError) -> None:
        """End the stream with a Close that names the error."""
        self.put(Frame.of(Close(None, Fault.of(error)), "to_client"))
        self.put(None)

    async def drained(self) -> None:
        """Wait until at most LOW_WATER_BYTES are queued."""
        await self._is_drained.wait()

    async def write_all(
        self,
        context: rpc.Context,
        encode: Callable[[Item], bytes | None],
        on_written: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Write items until the stream ends; skip those that `encode` turns into None.

        `on_written` is called with the bytes written in all. Raises SlowReader
        once a stalled peer reads again, and the errors of `encode`.
        """
        loop = asyncio.get_running_loop()
        written_bytes = 0
        async for item in self._items():
            data = encode(item)
            if data is None:
                continue
            timer = loop.call_later(limits.WRITE_TIMEOUT_S, self._stall)
            try:
                await context.write(data)
            finally:
                timer.cancel()
            written_bytes += len(data)
            if on_written is not None:
                await on_written(written_bytes)
        if self._is_stalled:
            raise SlowReader

    async def _items(self) -> AsyncIterator[Item]:
        while (item := await self._queue.get()) is not None:
            self._count(-_size(item))
            yield item

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > LOW_WATER_BYTES:
            self._is_drained.clear()
        else:
            self._is_drained.set()

    def _stall(self) -> None:
        """Empty the queue and end the stream, because the peer does not read."""
        if self._is_stalled:
            return
        self._is_stalled = True
        with suppress(asyncio.QueueEmpty):
            while True:
                self._queue.get_nowait()
        self._queue.put_nowait(None)
        self._on_stall()
