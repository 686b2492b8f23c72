"""Threads left out: the calls that drivers hand to a thread are made at once, in the same order.

What becomes of a damaged byte does not depend on which thread reads it, and the hops between
threads are most of the time that a small folder takes.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import aiosqlite.core


class _Queue:
    """The queue of a connection's thread, which makes each call as it is put."""

    def put_nowait(self, item: tuple["asyncio.Future[Any] | None", Callable[[], Any]]) -> None:
        future, function = item
        assert future is not None, "the loop runs"
        try:
            future.set_result(function())
        except Exception as error:  # noqa: BLE001  # the caller's, as from the thread
            future.set_exception(error)


class _Thread:
    """A thread that has nothing to do."""

    daemon = True

    def __init__(self, **_: Any) -> None:
        pass

    def start(self) -> None:
        pass


class _Executor(ThreadPoolExecutor):
    """An executor that makes each call as it is submitted."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*args, **keywords))
        except Exception as error:  # noqa: BLE001  # the caller's, as from the thread
            done.set_exception(error)
        return done


@contextmanager
def one_thread() -> Iterator[None]:
    """Leave out the threads of SQLite's connections and of `to_thread` in the running loop."""
    asyncio.get_running_loop().set_default_executor(_Executor(1))
    with patch.multiple(aiosqlite.core, SimpleQueue=_Queue, Thread=_Thread):
        yield
