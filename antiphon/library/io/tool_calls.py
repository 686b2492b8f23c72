"""The program's functions as a run calls them: tools, `resolve`, `policy`.

An async function runs in the event loop, any other in a thread, where it may use the
blocking form. Whatever a tool raises is told to the model.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.to_thread

from antiphon.library import events as e
from antiphon.library.tools import EFFECT_PARAMETER, Tool, text_of_error, text_of_result
from replica.conversation import OpenCall
from replica.ids import EntryId

_PERFORMED: ContextVar[frozenset[EntryId]] = ContextVar("requests", default=frozenset())
"""The requests whose calls the current function, or one that called it, performs."""


def is_performed_here(request: EntryId) -> bool:
    """Say whether the caller is a tool that a call behind a request runs."""
    return request in _PERFORMED.get()


@contextmanager
def _performing(request: EntryId) -> Iterator[None]:
    token = _PERFORMED.set(_PERFORMED.get() | {request})
    try:
        yield
    finally:
        _PERFORMED.reset(token)


async def call_tool(known: Tool, one: OpenCall) -> tuple[str, bool]:
    """Return the result of a tool as text, and whether it is an error."""
    call = e.Call(one.call.call_id, one.call.name, one.call.arguments_json)
    try:
        arguments = call.arguments
        if known.wants_key:
            arguments[EFFECT_PARAMETER] = one.effect_key
        with _performing(one.request):
            value = await called(known.function, **arguments)
    except Exception as error:  # noqa: BLE001  # the model reads it, and goes on
        return text_of_result(text_of_error(error)), True
    return text_of_result(value), False


async def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of the program: an async one here, any other in a thread.

    Raises what it raises. What is no Exception, such as an exit, is a RuntimeError: it
    ends the function, not the event loop and everything in it.
    """
    if not inspect.iscoroutinefunction(function):
        work = _in_thread(function, args, kwargs)
        found = await anyio.to_thread.run_sync(work)
    else:
        found = function(*args, **kwargs)
    return await _awaited(found) if inspect.isawaitable(found) else found


def _in_thread(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[], Any]:
    def work() -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:
            raise
        except BaseException as ended:  # SystemExit, as argparse raises it
            raise _ended(ended) from ended

    return work


async def _awaited(found: Any) -> Any:
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    before = task.cancelling()
    try:
        return await found
    except Exception:
        raise
    except BaseException as ended:
        is_cancelled = isinstance(ended, asyncio.CancelledError) and task.cancelling() > before
        is_closed = isinstance(ended, GeneratorExit) and not _is_current(task)
        if is_cancelled or is_closed:
            raise  # the run itself is ended
        raise _ended(ended) from ended


def _is_current(task: "asyncio.Task[Any]") -> bool:
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # no event loop runs any more
        return False


def _ended(error: BaseException) -> RuntimeError:
    return RuntimeError(text_of_error(error))
