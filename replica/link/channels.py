"""The channels of one link, with those that have something to do (spec/04-link §7).

Pure, and private to exchange.py. A link with thousands of conversations does the work
of those that a frame or a deadline concerns. Whoever reads a channel may change it, so
a read marks it, and marked channels are looked at once after each input.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from replica.ids import ConversationId
from replica.link.channel import Channel

_STALE_PER_CHANNEL = 4
"""Deadlines kept per channel before the stale ones are removed."""


class Channels(dict[ConversationId, Channel]):
    """Channels by conversation; the ones that are due, and their deadlines."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self._touched: dict[ConversationId, None] = {}
        self._due: dict[ConversationId, None] = {}
        self._deadlines: list[tuple[float, ConversationId]] = []
        self._scheduled: set[tuple[float, ConversationId]] = set()

    # --- reads that may be followed by a change -----------------------------------------

    def __getitem__(self, conversation: ConversationId) -> Channel:
        """Return a channel and mark it. Raises KeyError."""
        self.touch(conversation)
        return super().__getitem__(conversation)

    def get(self, conversation: ConversationId, default: Any = None) -> Any:
        """Return a channel and mark it, or the default."""
        if conversation not in self:
            return default  # a peer may name any number of others
        self.touch(conversation)
        return super().get(conversation, default)

    def __setitem__(self, conversation: ConversationId, channel: Channel) -> None:
        """Set a channel and mark it."""
        self.touch(conversation)
        super().__setitem__(conversation, channel)

    def setdefault(self, conversation: ConversationId, channel: Channel) -> Channel:
        """Return a channel and mark it; add `channel` if there is none."""
        self.touch(conversation)
        return super().setdefault(conversation, channel)

    def touch(self, conversation: ConversationId) -> None:
        """Mark a channel as one that may have changed."""
        self._touched[conversation] = None

    # --- work ------------------------------------------------------------------------------

    def due(self) -> Iterator[Channel]:
        """Iterate over the channels with something to send, the longest due first."""
        self._look()
        for conversation in tuple(self._due):
            channel = super().get(conversation)
            if channel is None or not channel.is_due:
                del self._due[conversation]
            else:
                yield channel

    def overdue(self, now: float) -> list[Channel]:
        """Return the channels with a deadline that has come, and mark them."""
        self._look()
        found: dict[ConversationId, Channel] = {}
        while self._deadlines and self._deadlines[0][0] <= now:
            at = heappop(self._deadlines)
            self._scheduled.discard(at)
            channel = super().get(at[1])
            if channel is not None and at[0] in channel.deadlines():
                found[at[1]] = channel
                self.touch(at[1])
        return list(found.values())

    def next_deadline(self) -> float | None:
        """Return the time of the next comparison, in seconds on the caller's clock."""
        self._look()
        while self._deadlines:
            at, conversation = self._deadlines[0]
            channel = super().get(conversation)
            if channel is not None and at in channel.deadlines():
                return at
            self._scheduled.discard(heappop(self._deadlines))
        return None

    def _look(self) -> None:
        """Note what the marked channels have to do."""
        touched, self._touched = self._touched, {}
        for conversation in touched:
            channel = super().get(conversation)
            if channel is None:
                self._due.pop(conversation, None)
                continue
            if channel.is_due:
                self._due.setdefault(conversation)
            for at in channel.deadlines():
                self._schedule((at, conversation))

    def _schedule(self, at: tuple[float, ConversationId]) -> None:
        if at in self._scheduled:
            return
        if len(self._deadlines) > _STALE_PER_CHANNEL * (len(self) + 16):
            live = {(time, one) for one, channel in self.items() for time in channel.deadlines()}
            self._deadlines, self._scheduled = list(live), live
            heapify(self._deadlines)
            if at in live:
                return
        self._scheduled.add(at)
        heappush(self._deadlines, at)
