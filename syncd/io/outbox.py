"""The bounded queue of one stream, and its writer (spec/04-link §4).

A write blocks while the peer does not read, and gRPC can't cancel it. The link
of a stalled peer is dropped at once (DECISIONS D35), and the call ends with the
reason when the peer reads again. Sizes are those of the bytes written
(DECISIONS D28).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import assert_never

from replica import limits
from replica.errors import AntiphonError
from replica.io import rpc
from replica.link import Close, Fault, Frame
from replica.refusals import SlowReader
from syncd.links import Answered, Hint

LONG_BYTES = 8_192
"""Bytes from which on an item takes a while to encode or copy."""
LOW_WATER_BYTES = limits.OUTBOX_BYTES_MAX // 4
"""While more bytes than these are queued, no frames are read from the peer."""
_HINT_BYTES, _HEAD_BYTES, _ID_BYTES = 256, 192, 64
"""Approximate memory of a hint or answer, of an own head in it, and of an id.

They are encoded only when they are written.
"""

_NOTED_BYTES = 1_024
"""A change of the queue's size that is reported."""

Item = Frame | Hint | Answered
Encode = Callable[[Item], bytes | None]
"""Returns the bytes to write for an item; None to skip it."""
Pace = Callable[[bool], Awaitable[None]]
"""Returns when an item may be written; true is of a short one with none behind it."""


def _do_nothing() -> None:
    pass


def _size(item: Item) -> int:
    match item:
        case Frame():
            return len(item.data)
        case Hint():
            ids = len(item.parents) + len(item.membership_heads)
            return _HINT_BYTES + _HEAD_BYTES * len(item.own_heads) + _ID_BYTES * ids
        case Answered():
            return _HINT_BYTES
        case _:
            assert_never(item)


class Outbox:
    """The queue of one stream, in order; `put` never blocks the performer."""

    def __init__(
        self, on_stall: Callable[[], None], on_size: Callable[[int], None] | None = None
    ) -> None:
        """Start empty; `on_stall` is called once, if the peer does not read.

        `on_size` is called with the bytes queued, whenever they change by a kilobyte.
        """
        self._on_size = on_size
        self._noted_bytes = 0
        self._write_timer: asyncio.TimerHandle | None = None
        self._writing_since: float | None = None
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
        if (
            self._bytes > limits.OUTBOX_BYTES_MAX
            or self._queue.qsize() > limits.OUTBOX_MESSAGES_MAX
        ):
            self._stall()

    def end(self, error: AntiphonError) -> None:
        """End the stream with a Close that names the error."""
        self.put(Frame.of(Close(None, Fault.of(error.for_peer())), "to_client"))
        self.put(None)

    def drop(self, error: AntiphonError) -> None:
        """End the stream with a Close that names the error, in place of all that is queued."""
        if not self._is_stalled:
            self._empty()
            self.end(error)
            self._on_stall()

    def close(self) -> None:
        """Drop what is queued, and refer to nobody any more: the stream has ended."""
        self._is_stalled, self._on_size, self._on_stall = True, None, _do_nothing
        self._empty()

    async def drained(self) -> None:
        """Wait until at most LOW_WATER_BYTES are queued."""
        await self._is_drained.wait()

    async def write_all(
        self,
        context: rpc.Context,
        encode: Encode,
        on_taken: Callable[[Item], Awaitable[None]] | None = None,
        *,
        pace: Pace | None = None,
    ) -> None:
        """Write items until the stream ends; skip those that `encode` turns into None.

        `on_taken` is called with each item that was written or skipped; `pace` returns when an
        item may be encoded and written. Raises SlowReader once a stalled peer reads
        again, and the errors of `encode`.
        """
        try:
            while (item := await self._queue.get()) is not None:
                self._count(-_size(item))
                if pace is not None:
                    await pace(self._queue.empty() and _size(item) < LONG_BYTES)
                data = encode(item)
                if data is not None:
                    await self._write(context, data)
                if on_taken is not None:
                    await on_taken(item)
        finally:
            if self._write_timer is not None:
                self._write_timer.cancel()
        if self._is_stalled:
            raise SlowReader

    async def _write(self, context: rpc.Context, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._writing_since = loop.time()
        if self._write_timer is None:  # one for many writes: a timer costs as much as a frame
            self._write_timer = loop.call_later(limits.WRITE_TIMEOUT_S, self._check_write)
        try:
            await context.write(data)
        finally:
            self._writing_since = None

    def _check_write(self) -> None:
        """Stall the stream if its write takes too long, or look again when it would."""
        self._write_timer = None
        if self._writing_since is None:
            return
        loop = asyncio.get_running_loop()
        stalls_at = self._writing_since + limits.WRITE_TIMEOUT_S
        if loop.time() >= stalls_at:
            self._stall()
        else:
            self._write_timer = loop.call_at(stalls_at, self._check_write)

    def _count(self, size: int) -> None:
        self._bytes += size
        change = abs(self._bytes - self._noted_bytes)
        if self._on_size is not None and (change >= _NOTED_BYTES or (change and not self._bytes)):
            self._noted_bytes = self._bytes
            self._on_size(self._bytes)
        if self._bytes > LOW_WATER_BYTES:
            self._is_drained.clear()
        else:
            self._is_drained.set()

    def _stall(self) -> None:
        """Empty the queue and end the stream, because the peer does not read."""
        if self._is_stalled:
            return
        self._is_stalled = True
        self._empty()
        self._queue.put_nowait(None)
        self._on_stall()

    def _empty(self) -> None:
        with suppress(asyncio.QueueEmpty):
            while True:
                self._queue.get_nowait()
        self._count(-self._bytes)
