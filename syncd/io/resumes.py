"""Sends links what waits for them, each in a step of its key (LINK-92)."""

import asyncio
from collections.abc import Callable

from replica.ids import ConversationId
from syncd.connected import LinkId
from syncd.fan_out import HubEffects
from syncd.fold_ends import resume
from syncd.hub import Hub
from syncd.io.folds import Folds
from syncd.io.pacer import Pacer


class Resumes:
    """The tasks that send; a conversation has one while links of it wait."""

    def __init__(
        self, hub: Hub, pacer: Pacer, folds: Folds, perform: Callable[[HubEffects], object]
    ) -> None:
        """Send to the postponed links of a hub; `perform` receives the effects of each step."""
        self._hub = hub
        self._pacer = pacer
        self._folds = folds
        self._perform = perform
        self._tasks: dict[ConversationId, asyncio.Task[None]] = {}

    def go_on(self) -> None:
        """Begin with what waits by now."""
        for conversation in self._hub.connected.postponed:
            if conversation not in self._tasks:
                task = asyncio.create_task(self._run(conversation), name="postponed links")
                self._tasks[conversation] = task

    async def stop(self) -> None:
        """Stop: what waits is sent no more."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, conversation: ConversationId) -> None:
        try:
            while (link_id := self._hub.connected.postponed.take(conversation)) is not None:
                await self._send(conversation, link_id)
        finally:
            del self._tasks[conversation]

    async def _send(self, conversation: ConversationId, link_id: LinkId) -> None:
        link = self._hub.links.get(link_id)
        if link is not None and link.peer is not None:
            await self._pacer.step(link.peer)
            await self._folds.ended(conversation)
            self._perform(resume(self._hub, link_id, conversation))
