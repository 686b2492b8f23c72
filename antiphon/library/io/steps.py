"""The items of an async generator for several readers, which may give up waiting, and close it."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import anyio

from antiphon.library.errors import ReplicaClosed, RunUnfinished
from antiphon.library.io.to_its_end import to_its_end
from replica.io import look_at

T = TypeVar("T")
_AROUND: ContextVar[tuple["Steps[Any]", ...]] = ContextVar("around", default=())
"""The generators whose steps began what runs now, such as a tool of a run."""
BEHIND_TOOL = "Return from the tool: whoever reads the run gets its events."
"""What a tool does that wants the rest of its own run."""
_END = object()
_CLOSING: set["asyncio.Task[None]"] = set()
"""Ends of generators whose readers were dropped; the event loop keeps no task."""


class Items(AsyncIterator[T]):
    """An iterator that goes on behind a cancelled wait, and that may be closed from outside.

    As a context it is closed behind its `async with`.
    """

    def __aiter__(self) -> Self:
        """Return itself: all readers share the items."""
        return self

    @abstractmethod
    async def aclose(self) -> None:
        """End it; who waits for an item leaves its loop."""

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        await self.aclose()

    def is_around(self) -> bool:
        """Say whether one of its steps began what calls this, such as a tool of a run."""
        return False


class Steps(Items[T]):
    """The items of a generator, one reader at a time; closing it ends the step in progress.

    Each step is a task of its own. A reader that is cancelled, as by a timeout, leaves the step
    to the next read.
    """

    def __init__(self, items: AsyncGenerator[T, None], check_loop: Callable[[], object]) -> None:
        """Read from `items`, which nobody else reads; `check_loop` refuses other event loops."""
        self._items = items
        self._check_loop = check_loop
        self._lock = asyncio.Lock()
        self._step: asyncio.Task[Any] | None = None
        self._scope: anyio.CancelScope | None = None
        """Ends the step, also where a part of it takes no notice of a single cancellation."""
        self._ends_behind_item = False
        self._has_reader = asyncio.Event()
        self._unbroken: asyncio.Event | None = None
        self.is_ended = False
        self._ended_by: Exception | None = None

    async def __anext__(self) -> T:
        """Return the next item. Raises StopAsyncIteration at the end, and once it is closed.

        A cancellation is raised behind what is `unbroken`. Raises what `check_reader` raises.
        """
        self.check_reader()
        async with self._lock:
            if self._step is None and not self.is_ended:
                self._scope = anyio.CancelScope()
                self._step = asyncio.create_task(self._advance(self._scope))
                self._step.add_done_callback(look_at)  # it may be closed unread
            item = await self._read() if self._step is not None else _END
            if item is _END:
                await self._items.aclose()
                raise self._ended_by or StopAsyncIteration
            return cast(T, item)

    async def _advance(self, scope: anyio.CancelScope) -> Any:
        _AROUND.set((*_AROUND.get(), self))  # for this task
        item: Any = _END
        try:
            with scope:
                item = await anext(self._items, _END)
        finally:
            # Behind an error the generator has ended too.
            self.is_ended |= item is _END or self._ends_behind_item
        return item

    async def _read(self) -> Any:
        """Wait for the item of the step; a cancelled wait leaves it there."""
        step = self._step
        assert step is not None, "the caller looked"
        self._has_reader.set()
        try:
            if not step.done():  # `wait` takes a turn, in which each reader may be cancelled
                await asyncio.wait({step})
        except asyncio.CancelledError:
            if self._unbroken is not None:
                await to_its_end(self._unbroken.wait())
            raise
        finally:
            self._has_reader.clear()
        self._step = None
        try:
            return step.result()
        finally:
            del step  # an error refers to this frame

    def check_reader(self) -> None:
        """Refuse a reader that would wait for itself, or in another event loop.

        Raises RunUnfinished in what a step has begun; LoopUnsuitable, ReplicaClosed.
        """
        if self.is_around():
            raise RunUnfinished(
                "a tool of the run reads it, and it goes on behind the tool",
                next_step=BEHIND_TOOL,
            )
        self._check_loop()

    async def end(self, error: Exception) -> None:
        """End it with an error, and wait for the step, unless that is `unbroken`.

        What a step has begun may call this, and is not ended by that.
        """
        if self.is_ended or self.is_around():
            return
        self.is_ended, self._ended_by = True, error
        if self._scope is not None:
            self._scope.cancel()
        if self._step is not None and self._unbroken is None:
            await asyncio.wait({self._step})

    async def wanted(self) -> None:
        """Wait until somebody waits for an item."""
        await self._has_reader.wait()

    @contextmanager
    def unbroken(self) -> Iterator[None]:
        """Let a reader that is cancelled meanwhile wait for the end of the block."""
        self._unbroken = ended = asyncio.Event()
        try:
            yield
        finally:
            self._unbroken = None
            ended.set()

    def is_around(self) -> bool:
        """Say whether a step began what calls this, such as a tool of a run."""
        return self in _AROUND.get()

    async def aclose(self) -> None:
        """End the step in progress, and the generator.

        What a step began, such as a tool of a run, does not wait for itself: the next item is
        the last, and its reader ends the generator. Raises LoopUnsuitable.
        """
        if self.is_around():
            self._ends_behind_item = True
            return
        try:
            self._check_loop()
        except ReplicaClosed:
            return  # it has ended with its replica
        self.is_ended = True
        if self._scope is not None:
            self._scope.cancel()
        async with self._lock:
            if self._step is not None:
                await asyncio.wait({self._step})
                self._step = None
            await self._items.aclose()


class Reading(Items[T]):
    """A reader of steps, which are closed when it is dropped, as where a loop is left."""

    def __init__(self, steps: Steps[T]) -> None:
        """Read from `steps`; nothing is closed before the first read."""
        self._steps = steps
        self._loop: asyncio.AbstractEventLoop | None = None

    def __anext__(self) -> Any:
        """Return the next item, as that of the steps.

        What waits for it does not refer to this object: a loop that is cancelled drops it at
        once, and not with the traceback.
        """
        self._steps.check_reader()
        self._loop = asyncio.get_running_loop()
        return self._steps.__anext__()

    def is_around(self) -> bool:
        """Say whether a step began what calls this."""
        return self._steps.is_around()

    async def aclose(self) -> None:
        """Close the steps. Raises LoopUnsuitable."""
        await self._steps.aclose()
        self._loop = None

    def __del__(self) -> None:
        """Close the steps, in their loop: this may be any thread."""
        if self._loop is not None and not self._steps.is_ended:
            with suppress(RuntimeError):  # the loop is closed, and its generators with it
                self._loop.call_soon_threadsafe(_close, self._steps)


def _close(steps: Steps[Any]) -> None:
    task = asyncio.get_running_loop().create_task(steps.aclose())
    _CLOSING.add(task)
    task.add_done_callback(_CLOSING.discard)
