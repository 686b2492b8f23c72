"""Sends links what waits for them, in steps of their keys (LINK-92)."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from replica.errors import StoreError
from replica.ids import PublicKey
from replica.link import Credit, Link, Message
from syncd.hub import Hub
from syncd.io.folds import Folds
from syncd.io.pacer import Pacer
from syncd.later_steps import next_link, resume
from syncd.links import HubEffects, Key

Prepare = Callable[[Link, PublicKey, Message], Awaitable[None]]
"""Finds in steps what a message makes a link be sent; see Loader.prepare."""


class Resumes:
    """The tasks that send: one for the links of a key that wait, in one conversation."""

    def __init__(
        self,
        hub: Hub,
        pacer: Pacer,
        folds: Folds,
        prepare: Prepare,
        perform: Callable[[HubEffects], object],
    ) -> None:
        """Send to the postponed links of a hub; `perform` receives the effects of each step."""
        self._hub = hub
        self._pacer = pacer
        self._folds = folds
        self._prepare = prepare
        self._perform = perform
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._is_stopped = False
        hub.connected.postponed.drive()

    def go_on(self) -> None:
        """Begin with those that wait by now."""
        for key in self._hub.connected.postponed.take_new():
            if key not in self._tasks and not self._is_stopped:
                task = asyncio.create_task(self._run(key), name="postponed links")
                self._tasks[key] = task

    async def ended(self) -> None:
        """Wait until no link waits."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks.values()))

    async def stop(self) -> None:
        """Stop: what waits is sent no more."""
        self._is_stopped = True
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: Key) -> None:
        conversation, peer = key
        try:
            while (link := next_link(self._hub, key)) is not None:
                await self._prepare(link, peer, Credit(0))  # as a credit that it had
                await self._pacer.step(peer)
                await self._folds.ended(conversation)
                with suppress(StoreError):  # the performer has ended, and the hub with it
                    self._perform(resume(self._hub, key))
        finally:
            del self._tasks[key]
