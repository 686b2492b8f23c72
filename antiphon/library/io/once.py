"""Contexts that are entered once. Entered again, they say so."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from antiphon.library.errors import LoopUnsuitable, ReplicaClosed

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
ELSEWHERE = "the replica was opened in another event loop"


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of the caller, None where none runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Entries:
    """The entries of a context, at most one."""

    def __init__(self) -> None:
        self._is_entered = False

    def add(self) -> None:
        """Note an entry. Raises ReplicaClosed for a second one."""
        if self._is_entered:
            raise ReplicaClosed(
                "what `open`, `join` and `local` return is for one `with`; call them again for"
                " another"
            )
        self._is_entered = True


@dataclass(slots=True)
class Keeping:
    """What all handles of a replica share; they keep the context that opened it.

    Python closes a generator that is collected, and with it would be closed what is in use.
    """

    opening: object = field(default=None, kw_only=True)


class Opened:
    """A handle that an async context opens."""

    _shared: Keeping


class _AsyncOnce(AbstractAsyncContextManager[T_co]):
    def __init__(self, context: AbstractAsyncContextManager[T_co]) -> None:
        self._context = context
        self._entries = Entries()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __getattr__(self, name: str) -> Any:
        """Say that `async with` gives what has this attribute."""
        raise AttributeError(f"begin it first: `async with … as me:`, then `me.{name}`", name=name)

    async def __aenter__(self) -> T_co:
        self._entries.add()
        self._loop = running_loop()
        value = await self._context.__aenter__()
        if isinstance(value, Opened):
            value._shared.opening = self._context
        return value

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        opener = self._loop
        if opener is not None and opener is not running_loop() and not opener.is_closed():
            raise LoopUnsuitable(ELSEWHERE)  # its tasks can't be awaited here
        return await self._context.__aexit__(kind, error, trace)


def async_once(
    function: Callable[P, AsyncIterator[T]],
) -> Callable[P, AbstractAsyncContextManager[T]]:
    """Do what `asynccontextmanager` does, and raise ReplicaClosed at a second entry."""
    make = asynccontextmanager(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _AsyncOnce(make(*args, **kwargs))

    return call
