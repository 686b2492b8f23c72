"""The blocking form of async functions: they run in the event loop of a thread.

`blocking(method)` has the parameters, the docstring and the result of the method; where
the result has a blocking form of its own, `returning` wraps it. So nothing of the async form
is written twice.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401  # see _close_all
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    suppress,
)
from contextvars import ContextVar
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

import anyio
from anyio.from_thread import BlockingPortal

from antiphon.library.errors import LoopUnsuitable, ReplicaClosed
from antiphon.library.io import loop_thread
from antiphon.library.io.once import Entries
from antiphon.library.io.steps import Items
from antiphon.library.io.unpickled import Unpickled
from replica.io import typed_errors

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W")
T = TypeVar("T")
TOOLS_S = 10.0
"""Seconds that a close waits for plain functions of runs; one of them may wait for the close."""
_AROUND: ContextVar[tuple["_Call", ...]] = ContextVar("calls", default=())
"""The calls whose work is what runs now, such as a tool of a run."""
_IN_LOOP = "an async function runs in the loop that this call waits for"
_INHERITED = (
    "it was opened by the process that forked this one; start processes by 'spawn', and open the"
    " folder in each"
)


class Portal:
    """The event loop of a thread, and an async context in it, until `close`."""

    def __init__(self) -> None:
        """Take a thread. Raises StoreError where no descriptor is free for its loop."""
        self._opener = threading.current_thread()
        self._closing = threading.Lock()
        self._entering: asyncio.Task[None] | None = None
        """Enters the context, waits for `_leaving`, and leaves it."""
        self._is_entered = False
        self._leaving = asyncio.Event()
        self._begun: set[asyncio.Task[None]] = set()
        self._is_inherited = False
        self.is_open = True
        self.calls: set[_Call] = set()
        started: Future[BlockingPortal] = Future()
        try:
            with typed_errors():
                self._running = loop_thread.run(partial(_serve, started))
            self._loop = started.result()
        except BaseException:  # Ctrl-C, and the thread would go on for ever
            if not started.cancel():
                started.result().start_task_soon(started.result().stop)
            raise
        _PORTALS.add(self)

    def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter the context, which `close` leaves.

        An interrupt of the wait is raised at once; `close` undoes what was entered so far.
        """
        inner: Future[T] = Future()
        self._loop.call(self._begin, context, inner)
        return inner.result()

    async def _begin(self, context: AbstractAsyncContextManager[T], inner: "Future[T]") -> None:
        # No task of anyio's: to end one cancels each wait of the undoing too.
        self._entering = asyncio.create_task(self._hold(context, inner))

    async def _hold(self, context: AbstractAsyncContextManager[T], inner: "Future[T]") -> None:
        try:
            async with context as value:
                self._is_entered = True
                inner.set_result(value)
                await self._leaving.wait()
        except BaseException as error:
            if self._is_entered:
                raise
            inner.set_exception(error)

    async def _leave(self) -> None:
        """Leave the context, or undo what was entered of it."""
        if self._entering is None:
            return
        if not self._is_entered:
            self._entering.cancel()
        self._leaving.set()
        await self._entering

    def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Call a function in the loop's thread, and wait for its result.

        Raises ReplicaClosed, and LoopUnsuitable in that thread. An interrupt of the wait, such
        as Ctrl-C, ends the call before it is raised.
        """
        if not self.is_open:
            raise ReplicaClosed(_INHERITED if self._is_inherited else "")
        if self._running.is_here():
            raise LoopUnsuitable(_IN_LOOP)
        call = _Call(self)
        future = self._loop.start_task_soon(call.run, function, args)
        try:
            return cast(T, future.result())
        finally:
            if not future.done():
                self._loop.start_task_soon(call.cancel)
                call.ended.wait()

    def finish(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call a function as an iterator ends.

        The collector may end one in the loop's own thread, which does not wait for itself.
        """
        if not self._running.is_here():
            self.call(function)
            return
        task = asyncio.get_running_loop().create_task(function())
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    def close(self) -> None:
        """Leave the context and the thread; do nothing when repeated.

        Calls still in progress raise ReplicaClosed. A call in a plain function is waited for
        TOOLS_S, unless that function itself closes; behind that its thread ends by itself.
        Raises LoopUnsuitable in the thread of the loop.
        """
        if self._is_inherited:
            return  # the thread is not here, and the context is another process's
        if self._running.is_here():
            raise LoopUnsuitable(_IN_LOOP)
        with self._closing:
            if self not in _PORTALS:
                return
            self.is_open, have_ended = False, True
            try:
                have_ended = self._loop.call(self._end_calls, _AROUND.get())
                self._loop.call(self._leave)
            finally:
                _PORTALS.discard(self)
                self._loop.call(self._loop.stop, True)
                if have_ended:
                    self._running.wait()

    async def _end_calls(self, around: "tuple[_Call, ...]") -> bool:
        """Cancel all calls, and say whether they have ended; none of `around` is waited for."""
        calls = [*self.calls]
        for call in calls:
            await call.cancel()
        end = time.monotonic() + TOOLS_S
        for call in calls:
            if call not in around:
                left_s = max(0.0, end - time.monotonic())
                await anyio.to_thread.run_sync(call.ended.wait, left_s)
        return all(call.ended.is_set() for call in calls)

    def close_at_exit(self) -> None:
        """Close it as Python ends; behind the thread that opened it, where it still runs."""
        if self._opener is threading.main_thread() or self._opener.daemon:
            self.close()
        else:
            threading.Thread(target=self._close_behind_opener).start()

    def _close_behind_opener(self) -> None:
        self._opener.join()
        self.close()

    def abandon(self) -> None:
        """Refuse all calls: this process is a forked child, and lacks the thread."""
        self.is_open, self._is_inherited = False, True


_PORTALS: set[Portal] = set()
"""The portals of this process that are not closed."""
_ABANDONED: list[Portal] = []
"""Those of the process that forked this one. Nothing of them is freed: finalizers would wait
for threads that are not here."""


def _close_all() -> None:
    with ExitStack() as closing:  # all of them, though one fails
        for portal in tuple(_PORTALS):
            closing.callback(portal.close_at_exit)


def _abandon_all() -> None:
    for portal in _PORTALS:
        portal.abandon()
    _ABANDONED.extend(_PORTALS)
    _PORTALS.clear()


# Python waits for its threads before it calls what `atexit` has. concurrent.futures, imported
# above, has registered here before, so that its threads still work when this is called.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_abandon_all)


async def _serve(started: "Future[BlockingPortal]") -> None:
    try:
        async with BlockingPortal() as loop:
            if started.set_running_or_notify_cancel():
                started.set_result(loop)
                await loop.sleep_until_stopped()
    except BaseException as error:
        if started.done():
            raise
        started.set_exception(error)


class Entering(AbstractContextManager[W], Generic[T, W]):
    """An async context, entered in the event loop of a thread and left at the end.

    Any thread may leave it, also twice. It is not left where this object is collected: what it
    returned is in use.
    """

    def __init__(
        self, context: AbstractAsyncContextManager[T], wrap: Callable[[Portal, T], W]
    ) -> None:
        """Enter `context`, and return what `wrap` makes of its value."""
        self._context = context
        self._wrap = wrap
        self._entries = Entries()
        self._portal: Portal | None = None

    def __enter__(self) -> W:
        """Enter it. Raises ReplicaClosed for a second time."""
        self._entries.add()
        portal = self._portal = Portal()
        try:
            return self._wrap(portal, portal.enter(self._context))
        except BaseException:
            portal.close()
            raise

    def __getattr__(self, name: str) -> Any:
        """Say that `with` gives what has this attribute."""
        raise AttributeError(f"begin it first: `with … as me:`, then `me.{name}`", name=name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the portal."""
        if self._portal is not None:
            self._portal.close()


def entered(
    context: AbstractAsyncContextManager[T], wrap: Callable[[Portal, T], W]
) -> AbstractContextManager[W]:
    """Return the blocking form of an async context."""
    return Entering(context, wrap)


class _Call:
    """One call in the loop's thread, which can be cancelled."""

    def __init__(self, portal: Portal) -> None:
        """Be one of the portal's calls from its start to its end."""
        self._portal = portal
        self._scope: anyio.CancelScope | None = None
        self._is_cancelled = False
        self.ended = threading.Event()

    async def run(self, function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
        """Return the result of the function. Raises ReplicaClosed if it was cancelled."""
        self._portal.calls.add(self)
        _AROUND.set((*_AROUND.get(), self))  # for the task of the call, and what it begins
        try:
            with anyio.CancelScope() as self._scope:
                if self._portal.is_open and not self._is_cancelled:
                    return await function(*args)
            raise ReplicaClosed
        except asyncio.CancelledError:
            # gRPC raises one of its own, which the scope does not know.
            if self._is_cancelled:
                raise ReplicaClosed from None
            raise
        finally:
            self._portal.calls.discard(self)
            self.ended.set()

    async def cancel(self) -> None:
        """End the call; a tool that runs in a thread is finished first."""
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()


class Blocking(Unpickled):
    """The blocking form of an object of the async form."""

    def __init__(self, portal: Portal, core: Any) -> None:
        """Call the methods of `core` in the portal's thread."""
        self._portal = portal
        self._core = core

    def __repr__(self) -> str:
        """Return what the async form shows."""
        return repr(self._core)

    def __eq__(self, other: object) -> bool:
        """Say whether both stand for the same object."""
        return isinstance(other, Blocking) and self._core is other._core

    def __hash__(self) -> int:
        """Return the hash of the object."""
        return hash(id(self._core))


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return the blocking form of an async method."""

    @wraps(method)
    def call(self: Blocking, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, _call(self, method, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], R]", call)


def returning(
    wrap: Callable[[Portal, Any], W],
    method: Callable[Concatenate[Any, P], Awaitable[Any] | Any],
) -> Callable[Concatenate[Any, P], W]:
    """Return the blocking form of a method whose result `wrap` makes blocking."""

    @wraps(method)
    def call(self: Blocking, *args: P.args, **kwargs: P.kwargs) -> W:
        return wrap(self._portal, _call(self, method, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], W]", call)


def iterating(
    method: Callable[Concatenate[Any, P], Items[T]],
) -> "Callable[Concatenate[Any, P], Iteration[T]]":
    """Return the blocking form of a method that returns an async iterator."""

    @wraps(method)
    def call(self: Blocking, *args: P.args, **kwargs: P.kwargs) -> Iteration[T]:
        return Iteration(self._portal, _call(self, method, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], Iteration[T]]", call)


class Iteration(Iterator[T]):
    """The items of an async iterator, until `close`; leaving a loop over them closes it too.

    As a context it is closed behind its `with`.
    """

    def __init__(self, portal: Portal, items: Items[T]) -> None:
        """Read `items` in the portal's thread."""
        self._portal = portal
        self._items = items
        self._has_begun = self._is_ended = False

    def __next__(self) -> T:
        """Wait for the next item; any error ends the iteration.

        Raises StopIteration at the end, and as soon as it is closed, by another thread as well.
        """
        if self._is_ended:
            raise StopIteration
        self._has_begun, end = True, object()

        async def step() -> Any:
            return await anext(self._items, end)

        try:
            item = self._portal.call(step)
        except BaseException:
            self.close()
            raise
        if item is end:
            self.close()
            raise StopIteration
        return cast(T, item)

    def close(self) -> None:
        """End the iteration, from any thread; a thread that waits for an item leaves its loop.

        In a tool of the run that it reads, the next item is the last.
        """
        if self._is_ended:
            return
        self._is_ended = not self._items.is_around()  # then its reader closes it again
        # An iterator that outlives its replica ended with it, which another thread may close now.
        if self._portal.is_open:
            with suppress(ReplicaClosed):
                self._portal.finish(self._items.aclose)

    def __del__(self) -> None:
        """End it when a loop is left; one that was never begun has nothing to end."""
        if getattr(self, "_has_begun", False):
            self.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the iteration."""
        self.close()


def all_of(
    wrap: Callable[[Portal, Any], W],
) -> Callable[[Portal, Any], tuple[W, ...]]:
    """Return the wrapping of each item of a tuple."""
    return lambda portal, items: tuple(wrap(portal, item) for item in items)


def _call(self: Blocking, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    async def run() -> Any:
        result = method(self._core, *args, **kwargs)
        return await result if isinstance(result, Awaitable) else result

    return self._portal.call(run)
