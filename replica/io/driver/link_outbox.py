"""The frames of a client's link that are still to be written (spec/04-link §4).

What a hub makes a client send is bounded here, also where the hub reads nothing: a newer Open
takes the place of the one of its conversation, and all other frames have a bound together.
The counterpart of syncd/io/outbox.py.
"""

import asyncio
from collections import OrderedDict
from typing import NoReturn

from replica import limits
from replica.ids import ConversationId
from replica.io.calls import Call
from replica.link import Frame, Open
from replica.refusals import SlowReader

_FRAME_BYTES = 512
"""Memory of a frame beside its bytes, about."""


class LinkOutbox:
    """The queue of one stream, in order; `put` never waits."""

    def __init__(self) -> None:
        """Start empty."""
        self._frames: OrderedDict[int, Frame] = OrderedDict()
        self._open_at: dict[ConversationId, int] = {}
        self._number = 0
        self._bytes = 0
        self._has_frames = asyncio.Event()
        self._is_full = asyncio.Event()

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, frame: Frame) -> None:
        """Queue a frame; beyond the bound all are dropped, and `full` raises.

        Opens are not counted: of each conversation one waits, the newest.
        """
        if self._is_full.is_set():
            return
        self._number += 1
        self._frames[self._number] = frame
        if isinstance(frame.message, Open):
            replaced = self._open_at.pop(frame.message.conversation, None)
            if replaced is not None:
                del self._frames[replaced]
            self._open_at[frame.message.conversation] = self._number
        else:
            self._bytes += _size(frame)
        if self._bytes > limits.OUTBOX_BYTES_MAX:
            self._frames.clear()
            self._is_full.set()
        self._has_frames.set()

    async def full(self) -> NoReturn:
        """Wait until more is queued than the bound. Raises SlowReader."""
        await self._is_full.wait()
        raise SlowReader("the hub reads less than it makes this client send")

    async def write_all(self, call: Call) -> NoReturn:
        """Write frames until cancelled."""
        while True:
            await self._has_frames.wait()
            while self._frames:
                await call.write(self._take().data)
            self._has_frames.clear()

    def _take(self) -> Frame:
        _, frame = self._frames.popitem(last=False)
        if isinstance(frame.message, Open):
            del self._open_at[frame.message.conversation]
        else:
            self._bytes -= _size(frame)
        return frame


def _size(frame: Frame) -> int:
    return len(frame.data) + _FRAME_BYTES
