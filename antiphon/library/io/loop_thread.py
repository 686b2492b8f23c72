"""Threads with an event loop, each for one replica of the blocking form at a time (DECISIONS D595).

gRPC keeps every loop that it was used in as long as the process lives, and passes late events
to it. So once gRPC is used, a loop whose replica has closed goes on, and waits for the next one.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401  # as in portal.py
import os
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any
from weakref import WeakSet

import anyio

from replica.io import uses_grpc

Function = Callable[[], Awaitable[None]]


class Running:
    """A function in the event loop of a thread, where nothing else runs meanwhile."""

    def __init__(self, function: Function) -> None:
        """Use `run`."""
        self.function = function
        self.thread: LoopThread | None = None
        self.is_kept = False
        """Whether the thread goes on behind the end."""
        self.ended = threading.Event()

    def is_here(self) -> bool:
        """Say whether the caller is in the thread."""
        return self.thread is not None and threading.get_ident() == self.thread.thread.ident

    def wait(self) -> None:
        """Wait until the function has ended, and its thread unless that is kept."""
        self.ended.wait()
        if not self.is_kept and self.thread is not None:
            self.thread.thread.join()


def run(function: Function) -> Running:
    """Run a function in the loop of a thread, of one that is kept or of a new one.

    What it leaves behind in the loop is ended with it, as by asyncio.run.
    """
    running = Running(function)
    with _Kept.lock:
        if _Kept.idle and not _Kept.is_ending:
            running.thread = _Kept.idle.pop()
            running.thread.put(running)
            return running
    running.thread = LoopThread(running)
    return running


class LoopThread:
    """A thread that runs functions in its loop, one after the other."""

    def __init__(self, first: Running) -> None:
        """Start the thread with its first function.

        Raises OSError where no loop can be made, as without a free descriptor: nobody would end
        a wait for the function.
        """
        self._given: asyncio.Queue[Running | None] = asyncio.Queue()
        self._given.put_nowait(first)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun: Future[None] = Future()
        self.thread = threading.Thread(target=self._run, name="antiphon")
        self.thread.start()
        self._begun.result()

    def put(self, one: Running | None) -> None:
        """Have a function run behind those before it, or the thread end."""
        assert self._loop is not None, "the thread has started"
        self._loop.call_soon_threadsafe(self._given.put_nowait, one)

    def _run(self) -> None:
        runner = asyncio.Runner()
        try:
            self._loop = runner.get_loop()
        except BaseException as error:  # noqa: BLE001  # raised where the thread is started
            self._begun.set_exception(error)
            return
        with runner:
            _Kept.started.add(self)
            self._begun.set_result(None)
            try:
                while self._goes_on(runner):
                    pass
            finally:
                _Kept.started.discard(self)

    def _goes_on(self, runner: asyncio.Runner) -> bool:
        """Run the next function; say whether the thread is kept."""
        running = runner.run(self._given.get())
        if running is None:
            return False
        try:
            _run_to_end(runner.get_loop(), running.function)
            # Without the lock: whoever has it may wait for this thread, as a finalizer does.
            running.is_kept = uses_grpc() and not _Kept.is_ending
            if running.is_kept:
                _Kept.idle.append(self)
        finally:
            running.ended.set()
        return running.is_kept


def _run_to_end(loop: asyncio.AbstractEventLoop, function: Function) -> None:
    """Run a function, and let it end by itself where something else has stopped the loop.

    The Runner would cancel what the function needs for that along with it. Raises what stopped
    the loop, such as a SystemExit of another task.
    """
    main = loop.create_task(_alone(function), context=copy_context())
    try:
        loop.run_until_complete(main)
    except BaseException:
        if not main.done():
            main.cancel()
            loop.run_until_complete(asyncio.wait([main]))
        raise


class _Kept:
    """The threads of this process."""

    lock = threading.RLock()
    """Held while a thread is given a function, so that none is told to end in between."""
    idle: list[LoopThread] = []  # noqa: RUF012
    started: set[LoopThread] = set()  # noqa: RUF012
    is_ending = False
    abandoned: list[LoopThread] = []  # noqa: RUF012
    """Those of the process that forked this one; nothing of them is freed, as in portal.py."""


async def _alone(function: Function) -> None:
    """Await a function, then end what it has left in the loop."""
    loop = asyncio.get_running_loop()
    is_debugged, slow_s = loop.get_debug(), loop.slow_callback_duration
    executor = ThreadPoolExecutor(thread_name_prefix="asyncio")
    loop.set_default_executor(executor)
    generators: WeakSet[AsyncGenerator[Any, Any]] = WeakSet()
    of_loop = sys.get_asyncgen_hooks().firstiter

    def note(one: AsyncGenerator[Any, Any]) -> None:
        generators.add(one)
        if of_loop is not None:
            of_loop(one)

    sys.set_asyncgen_hooks(firstiter=note)
    try:
        await function()
    finally:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await _all_ended("a task that its replica has ended", tasks)
        await _all_ended(
            "an iteration that its replica has ended", [g.aclose() for g in generators]
        )
        await anyio.to_thread.run_sync(executor.shutdown)
        loop.set_exception_handler(None)
        loop.set_task_factory(None)
        loop.set_debug(is_debugged)
        loop.slow_callback_duration = slow_s


async def _all_ended(what: str, ending: Iterable[Awaitable[Any]]) -> None:
    for ended in await asyncio.gather(*ending, return_exceptions=True):
        if isinstance(ended, Exception):
            context = {"message": f"{what} has failed", "exception": ended}
            asyncio.get_running_loop().call_exception_handler(context)


def _end_all() -> None:
    """Let each thread end behind what it runs."""
    with _Kept.lock:
        _Kept.is_ending = True
        _Kept.idle.clear()
        for one in tuple(_Kept.started):
            with suppress(RuntimeError):  # it has ended by itself
                one.put(None)


def _abandon_all() -> None:
    _Kept.lock = threading.RLock()  # another thread may have had it
    _Kept.abandoned += _Kept.started
    _Kept.started.clear()
    _Kept.idle.clear()


# Before portal.py does, so that replicas are closed first as Python ends.
threading._register_atexit(_end_all)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_abandon_all)
