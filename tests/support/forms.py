"""Both forms of the library behind one: a test is written with `await` and runs in both."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import antiphon
from antiphon.library.io.portal import Blocking

_AT_ONCE = {"run", "at"}
"""Methods that are no coroutines in the async form either."""
_END = object()


class Awaited:
    """A blocking object with the interface of its async form; each call has a thread."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found):
            return found
        if name in _AT_ONCE:
            return lambda *args, **kwargs: _wrapped(found(*args, **kwargs))
        if name == "events":
            return lambda: _Items(iter(found()))

        async def call(*args: Any, **kwargs: Any) -> Any:
            bare = [one.inner if isinstance(one, Awaited) else one for one in args]
            return _wrapped(await asyncio.to_thread(found, *bare, **kwargs))

        return call

    def __aiter__(self) -> AsyncIterator[Any]:
        return _Items(iter(self.inner))


class _Items:
    def __init__(self, items: Any) -> None:
        self._items = items

    def __aiter__(self) -> "_Items":
        return self

    async def __anext__(self) -> Any:
        item = await asyncio.to_thread(next, self._items, _END)
        if item is _END:
            raise StopAsyncIteration
        return item


def _wrapped(value: Any) -> Any:
    if isinstance(value, tuple) and any(isinstance(one, Blocking) for one in value):
        return tuple(map(_wrapped, value))
    return Awaited(value) if isinstance(value, Blocking) else value


@asynccontextmanager
async def _in_threads(opening: AbstractContextManager[Any]) -> AsyncIterator[Any]:
    me = await asyncio.to_thread(opening.__enter__)
    try:
        yield Awaited(me)
    finally:
        await asyncio.to_thread(opening.__exit__, None, None, None)


def opened(form: str, folder: Path, **options: Any) -> AbstractAsyncContextManager[Any]:
    """Open a replica in one form: async or blocking."""
    if form == "async":
        return antiphon.aio.open(folder, **options)
    return _in_threads(antiphon.open(folder, **options))


def joined(form: str, code: str, folder: Path) -> AbstractAsyncContextManager[Any]:
    """Join with a code in one form: async or blocking."""
    if form == "async":
        return antiphon.aio.join(code, folder)
    return _in_threads(antiphon.join(code, folder))
