"""A task that does work as it comes, whoever cancels it (DECISIONS D463)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Worker:
    """A task until `stop`, or until it ends by itself.

    asyncio.run cancels every task at the end of a program, in no order: also this one, which
    others need to end in order. It begins again then if work is left, else with the next work. A
    worker without work stays cancelled: nothing keeps the program from ending.
    """

    def __init__(
        self, work: Callable[[], Coroutine[Any, Any, None]], has_work: Callable[[], bool], name: str
    ) -> None:
        """Begin. `work` is called anew after a cancellation, which it lets pass at any await."""
        self._work = work
        self._has_work = has_work
        self._name = name
        self._is_stopped = False
        self._task = self._begin()

    @property
    def has_ended(self) -> bool:
        """Say whether it ended by itself, as with an error, or was stopped."""
        return self._is_stopped or (self._task.done() and not self._task.cancelled())

    def go_on(self) -> None:
        """Begin again if the task was cancelled; to be called with each new work."""
        if self._task.cancelled() and not self._is_stopped:
            self._task = self._begin()

    async def ended(self) -> None:
        """Wait until it ends by itself; raise the error it ended with."""
        while not self.has_ended:
            self.go_on()
            await asyncio.wait({self._task})
        self._task.result()

    async def stop(self) -> None:
        """End it, whatever it does."""
        self._is_stopped = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._work(), name=self._name)
        task.add_done_callback(self._look)
        return task

    def _look(self, _ended: asyncio.Task[None]) -> None:
        if self._has_work():
            self.go_on()
