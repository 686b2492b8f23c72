"""Calls to a thread, which performs them between two of its steps."""

import asyncio
import queue
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from replica.errors import HostError

Result = TypeVar("Result")
Call = Callable[[], None]


class CallQueue:
    """The calls of one thread, performed in the order in which they come.

    Results go to the event loop. Some calls wait until the thread has nothing else to do.
    """

    def __init__(self, turn: AbstractContextManager[None]) -> None:
        """Perform each call under `turn`."""
        self._turn = turn
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._idle_calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._is_open = False

    # --- on the event loop ------------------------------------------------------------

    def open(self) -> None:
        """Accept calls, and deliver their results on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._is_open = True

    def end(self) -> None:
        """Accept no more calls, and fail all that wait: the thread has ended."""
        self._is_open = False
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(HostError("The engine has stopped."))

    @contextmanager
    def awaited(self) -> Iterator["asyncio.Future[Any]"]:
        """Return a future that fails if the thread ends first. Raises HostError if it has."""
        if not self._is_open:
            raise HostError("The engine has stopped.")
        waiting: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.add(waiting)
        try:
            yield waiting
        finally:
            self._waiting.discard(waiting)

    async def call(self, work: Callable[[], Result], *, when_idle: bool = False) -> Result:
        """Perform `work` in the thread, soon or once it is idle; return its result.

        Raises what it raises, and HostError if the thread ends first.
        """
        with self.awaited() as done:

            def settle(result: Result | None, error: Exception | None) -> None:
                if done.done():
                    return
                if error is not None:
                    done.set_exception(error)
                else:
                    done.set_result(result)

            def perform() -> None:
                try:
                    result = work()
                except Exception as error:  # noqa: BLE001  # raised at the caller
                    self._loop.call_soon_threadsafe(settle, None, error)
                else:
                    self._loop.call_soon_threadsafe(settle, result, None)

            if when_idle:
                self._idle_calls.put(lambda: None if done.done() else perform())
                self.post(lambda: None)  # wakes the thread
            else:
                self.post(perform)
            result: Result = await done
            return result

    # --- any thread -------------------------------------------------------------------

    def post(self, call: Call) -> None:
        """Let the thread perform a call that nobody waits for."""
        self._calls.put(call)

    def wake(self) -> None:
        """End the thread's present `perform_all` after the calls before."""
        self._calls.put(None)

    # --- in the thread ----------------------------------------------------------------

    @property
    def has_idle_calls(self) -> bool:
        """Whether calls wait until the thread is idle."""
        return not self._idle_calls.empty()

    def perform_all(self, *, wait: bool) -> None:
        """Perform all calls; with `wait`, wait for one first."""
        try:
            call = self._calls.get(block=wait)
            while call is not None:
                self._perform(call)
                call = self._calls.get(block=False)
        except queue.Empty:
            return

    def perform_one(self, timeout_s: float) -> None:
        """Perform the next call, if one comes in time."""
        try:
            call = self._calls.get(timeout=timeout_s)
        except queue.Empty:
            return
        if call is not None:
            self._perform(call)

    def perform_idle(self) -> None:
        """Perform one of the calls that wait until the thread is idle; it is the caller's turn."""
        self._idle_calls.get()()

    def _perform(self, call: Call) -> None:
        with self._turn:
            call()
