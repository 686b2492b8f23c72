"""Runs work on a conversation that may pause, so that a long fold holds up nobody (LINK-92).

The work is a plain call into the core. It runs in a coroutine (a greenlet), which can pause at
any depth: the meter of a log asks for it every 64 entries, and here it is granted
once the step has taken some time. Work that doesn't pause costs no turn of the event loop.
A pause is no wait for the disk or a peer; the next step follows when the pacer lets its key go on.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from greenlet import getcurrent, greenlet

from replica.conversation import Conversation
from replica.ids import ConversationId, PublicKey
from syncd.fold_ends import end_fold
from syncd.hub import Hub
from syncd.io.pacer import Pacer
from syncd.links import HubEffects

STEP_S = 0.001
"""Time of a step after which work pauses where it may: half a slice of the pacer."""


class Folds:
    """The work on conversations that pauses; each conversation has one at a time."""

    def __init__(self, hub: Hub, pacer: Pacer, perform: Callable[[HubEffects], object]) -> None:
        """Pause the work of a hub; `perform` receives the effects of the end of a pause."""
        self._hub = hub
        self._pacer = pacer
        self._perform = perform
        self._of: dict[ConversationId, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._idle: greenlet | None = None
        self._began = 0.0
        hub.shelf.folding.drive(self._is_due, self._pause)

    async def run(self, peer: PublicKey, work: Callable[[], None]) -> None:
        """Run the work of a key; a caller that is cancelled does not stop what has begun."""
        coroutine, self._idle = self._idle or greenlet(_perform), None
        paused = self._go_on(coroutine, work)
        if paused is None:
            return
        task = asyncio.create_task(self._finish(peer, coroutine, paused), name="long fold")
        self._of[paused.id] = task
        self._running.add(task)
        task.add_done_callback(partial(self._end, coroutine, paused))
        await asyncio.shield(task)

    async def ended(self, conversation: ConversationId) -> None:
        """Wait for work on a conversation that pauses; none does until the caller's next await."""
        while conversation in self._of:
            await asyncio.wait((self._of[conversation],))

    def after(self, conversation: ConversationId, call: Callable[[], None]) -> None:
        """Call once work on a conversation does not pause; at once if there is none."""
        task = self._of.get(conversation)
        if task is None:
            call()
        else:
            task.add_done_callback(lambda _: call())

    async def stop(self) -> None:
        """Wait for all work: its entries are admitted, and not stored yet."""
        while self._running:
            await asyncio.wait(self._running)

    async def _finish(self, peer: PublicKey, coroutine: greenlet, paused: Conversation) -> None:
        try:
            await self._pacer.step(peer)
            while self._go_on(coroutine) is not None:
                await self._pacer.step(peer)
        finally:
            if coroutine.dead:  # an error left it between two states: it is read anew
                self._hub.shelf.invalidate(paused.id)
            if coroutine.dead or coroutine is self._idle:  # else it is cut off: see `_end`
                self._note_ended(paused)

    def _end(self, coroutine: greenlet, paused: Conversation, task: "asyncio.Task[None]") -> None:
        """Let the store be read anew where a task is cancelled, perhaps before it began."""
        self._running.discard(task)
        if self._of.get(paused.id) is task:
            coroutine.throw()
            self._hub.shelf.invalidate(paused.id)
            self._note_ended(paused)

    def _note_ended(self, paused: Conversation) -> None:
        del self._of[paused.id]
        self._perform(end_fold(self._hub, paused))

    def _go_on(
        self, coroutine: greenlet, work: Callable[[], None] | None = None
    ) -> Conversation | None:
        """Run a step, the first one of `work`; return what pauses, None at its end.

        To create a coroutine takes ten times as long as to switch to it, so one is kept.
        """
        self._began = time.perf_counter()
        paused: Conversation | None = coroutine.switch(work)
        if paused is None:
            self._idle = coroutine
        return paused

    def _is_due(self) -> bool:
        return getcurrent().parent is not None and time.perf_counter() - self._began > STEP_S

    @staticmethod
    def _pause(held: Conversation) -> None:
        loop = getcurrent().parent
        assert loop is not None, "work that pauses runs in a coroutine"
        loop.switch(held)


def _perform(work: Callable[[], None]) -> None:
    """Perform work, then what comes next; an error in it ends the coroutine."""
    loop = getcurrent().parent
    assert loop is not None, "a coroutine is no event loop"
    while True:
        work()
        del work  # what it refers to is freed now, and not when the next work comes
        work = loop.switch(None)
