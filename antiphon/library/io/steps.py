"""An async generator for several readers, which may be closed while one of them waits."""

import asyncio
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

import anyio

T = TypeVar("T")
_AROUND: ContextVar[tuple["Steps[Any]", ...]] = ContextVar("around", default=())
"""The generators whose steps began what runs now, such as a tool of a run."""


class Steps(Generic[T]):
    """The items of a generator, one reader at a time; closing it ends the step in progress."""

    def __init__(self, items: AsyncGenerator[T, None]) -> None:
        """Read from `items`, which nobody else reads."""
        self._items = items
        self._lock = asyncio.Lock()
        self._step: anyio.CancelScope | None = None
        self._ends_behind_item = False
        self.is_ended = False

    def __aiter__(self) -> "Steps[T]":
        """Return itself: all readers share the items."""
        return self

    async def __anext__(self) -> T:
        """Return the next item. Raises StopAsyncIteration at the end, and once it is closed."""
        async with self._lock:
            if not self.is_ended:
                with anyio.CancelScope() as step:
                    self._step, token = step, _AROUND.set((*_AROUND.get(), self))
                    try:
                        return await anext(self._items)
                    except BaseException:
                        self.is_ended = True  # as the generator is now
                        raise
                    finally:
                        self._step = None
                        self.is_ended |= self._ends_behind_item
                        _AROUND.reset(token)
            raise StopAsyncIteration

    def is_around(self) -> bool:
        """Say whether a step began what calls this, such as a tool of a run."""
        return self in _AROUND.get()

    async def aclose(self) -> None:
        """End the step in progress, and the generator.

        What a step began, such as a tool of a run, does not wait for itself: the next item is
        the last, and its reader ends the generator.
        """
        if self.is_around():
            self._ends_behind_item = True
            return
        self.is_ended = True
        if self._step is not None:
            self._step.cancel()
        async with self._lock:
            await self._items.aclose()
