"""The conversations whose checkpoints are to be uploaded, each at its time."""

import asyncio
import time
from collections.abc import Collection
from contextlib import suppress

from model_host.io.profiles import Offer
from replica.ids import ConversationId
from replica.link import Event, StateChanged, SyncState

DUE_MAX = 1024
"""Conversations that wait for their upload; of one more, the oldest is left out."""


class DueUploads:
    """At most DUE_MAX conversations, each with the profile of its last answer."""

    def __init__(self, idle_s: float) -> None:
        """Start with none; what was uploaded is due `idle_s` after a new link."""
        self._idle_s = idle_s
        self._due: dict[ConversationId, tuple[float, Offer]] = {}
        self._uploaded: dict[ConversationId, Offer] = {}
        """The conversations with archives of this process at the hub, and their profiles."""
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

    def note_uploaded(self, conversation: ConversationId, offer: Offer) -> None:
        """Let a conversation be due again with each link: the hub may have lost its archive."""
        self._uploaded[conversation] = offer

    def note_removed(self, conversation: ConversationId) -> None:
        """Note that the hub has no archive of a conversation any more."""
        self._uploaded.pop(conversation, None)

    def note_kept(self, conversations: Collection[ConversationId]) -> None:
        """Note that the hub has archives of these conversations alone: others expired."""
        for conversation in self._uploaded.keys() - conversations:
            del self._uploaded[conversation]

    def receive(self, event: Event) -> None:
        """Let the archive of a conversation be looked for with its new link (DECISIONS D717)."""
        match event:
            case StateChanged(conversation, SyncState.SYNCHRONIZED):
                offer = self._uploaded.get(conversation)
                # No upload of an answer is left out for one that is likely there.
                has_room = conversation not in self._due and len(self._due) < DUE_MAX
                if offer is not None and has_room:
                    self.put(conversation, offer, self._idle_s)
            case _:
                pass

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
