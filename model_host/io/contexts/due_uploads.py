"""The conversations whose checkpoints are to be uploaded, each at its time."""

import asyncio
import time
from contextlib import suppress

from model_host.io.profiles import Offer
from replica.ids import ConversationId

DUE_MAX = 1024
"""Conversations that wait for their upload; of one more, the oldest is left out."""


class DueUploads:
    """At most DUE_MAX conversations, each with the profile of its last answer."""

    def __init__(self) -> None:
        """Start with none."""
        self._due: dict[ConversationId, tuple[float, Offer]] = {}
        self._noted = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, conversation: ConversationId) -> bool:
        return conversation in self._due

    def put(self, conversation: ConversationId, offer: Offer, wait_s: float) -> None:
        """Let a conversation be due after a time, whenever it was due before."""
        self._due.pop(conversation, None)
        if len(self._due) >= DUE_MAX:
            del self._due[next(iter(self._due))]
        self._due[conversation] = (time.monotonic() + wait_s, offer)
        self._noted.set()

    def drop(self, conversation: ConversationId) -> None:
        """Let a conversation not be due any more."""
        self._due.pop(conversation, None)

    async def next(self) -> tuple[ConversationId, Offer]:
        """Wait for the conversation that is due first, and remove it from those that wait."""
        while True:
            self._noted.clear()
            wait_s = None
            if self._due:
                conversation = min(self._due, key=lambda one: self._due[one][0])
                due, offer = self._due[conversation]
                wait_s = due - time.monotonic()
                if wait_s <= 0:
                    del self._due[conversation]
                    return conversation, offer
            with suppress(TimeoutError):  # it is due, unless an earlier one was put meanwhile
                async with asyncio.timeout(wait_s):
                    await self._noted.wait()
