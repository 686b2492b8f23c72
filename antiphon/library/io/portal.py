"""The blocking form of async functions: they run in the event loop of a thread.

`blocking(method)` has the parameters, the docstring and the result of the method; where
the result has a blocking form of its own, `returning` wraps it. So nothing of the async form
is written twice.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from antiphon.library.errors import ReplicaClosed
from antiphon.library.io.steps import Steps

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W")
T = TypeVar("T")


class Portal:
    """The event loop of a thread, open until its `with` ends."""

    def __init__(self, loop: BlockingPortal) -> None:
        """Use a running portal."""
        self._loop = loop
        self._thread = loop.call(threading.get_ident)
        self._begun: set[asyncio.Task[None]] = set()
        self.is_open = True
        self.calls: set[_Call] = set()

    def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Call a function in the loop's thread, and wait for its result. Raises ReplicaClosed.

        An interrupt of the wait, such as Ctrl-C, ends the call before it is raised.
        """
        if not self.is_open:
            raise ReplicaClosed
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
        if threading.get_ident() != self._thread:
            self.call(function)
            return
        task = asyncio.get_running_loop().create_task(function())
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)

    @contextmanager
    def within(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter an async context; calls still in progress at its end raise ReplicaClosed."""
        with self._loop.wrap_async_context_manager(context) as inner:
            try:
                yield inner
            finally:
                self.is_open = False
                self._loop.call(self._end_calls)

    async def _end_calls(self) -> None:
        calls = [*self.calls]
        for call in calls:
            await call.cancel()
        for call in calls:
            await anyio.to_thread.run_sync(call.ended.wait)

    def close(self) -> None:
        """End the loop; calls that still wait there are cancelled."""
        self.is_open = False
        self._loop.call(self._loop.stop, True)


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
        try:
            with anyio.CancelScope() as self._scope:
                if self._portal.is_open and not self._is_cancelled:
                    return await function(*args)
            raise ReplicaClosed
        finally:
            self._portal.calls.discard(self)
            self.ended.set()

    async def cancel(self) -> None:
        """End the call; a tool that runs in a thread is finished first."""
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()


@contextmanager
def running_portal() -> Iterator[Portal]:
    """Run an event loop in a thread."""
    with start_blocking_portal() as loop:
        portal = Portal(loop)
        try:
            yield portal
        finally:
            portal.close()


class Blocking:
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
    """Return the blocking form of an async method; Blocking arguments are passed as their core."""

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
    method: Callable[Concatenate[Any, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Return the blocking form of a method that returns an async iterator."""

    @wraps(method)
    def call(self: Blocking, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return iterate(self._portal, _call(self, method, *args, **kwargs))

    return cast("Callable[Concatenate[Any, P], Iterator[T]]", call)


def iterate(portal: Portal, items: AsyncGenerator[T, None]) -> Iterator[T]:
    """Yield the items of an async generator; ending the iteration early closes it."""
    steps, end = Steps(items), object()

    async def step() -> Any:
        return await anext(steps, end)

    try:
        while (item := portal.call(step)) is not end:
            yield item
    finally:
        # An iterator that outlives its replica ended with it.
        if portal.is_open:
            portal.finish(steps.aclose)


def all_of(
    wrap: Callable[[Portal, Any], W],
) -> Callable[[Portal, Any], tuple[W, ...]]:
    """Return the wrapping of each item of a tuple."""
    return lambda portal, items: tuple(wrap(portal, item) for item in items)


def _call(self: Blocking, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    bare = [one._core if isinstance(one, Blocking) else one for one in args]

    async def run() -> Any:
        result = method(self._core, *bare, **kwargs)
        return await result if isinstance(result, Awaitable) else result

    return self._portal.call(run)
