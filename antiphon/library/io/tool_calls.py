"""The program's functions as a run calls them: tools, `resolve`, `policy`.

An async function runs in the event loop, in a task of its own; any other in a thread, where it
may use the blocking form. Whatever a tool raises is told to the model.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

from antiphon.library import events as e
from antiphon.library.argument_check import wrong_argument
from antiphon.library.io.in_thread import in_thread
from antiphon.library.io.to_its_end import to_its_end
from antiphon.library.tools import EFFECT_PARAMETER, Tool, text_of_error, text_of_result
from replica.conversation import OpenCall
from replica.ids import EntryId
from replica.io import look_at


@dataclass(slots=True, eq=False)
class _Performed:
    """A call behind a request that a tool performs."""

    request: EntryId
    is_over: bool = False


_PERFORMED: ContextVar[tuple[_Performed, ...]] = ContextVar("performed", default=())
"""The calls that the current function, or one that began it, performs."""


def is_performed_here(request: EntryId) -> bool:
    """Say whether the caller is a tool that a call behind a request runs, until that has ended.

    A task that a tool has left behind goes on without it.
    """
    return any(one.request == request and not one.is_over for one in _PERFORMED.get())


@contextmanager
def _performing(request: EntryId) -> Iterator[None]:
    performed = _Performed(request)
    token = _PERFORMED.set((*_PERFORMED.get(), performed))
    try:
        yield
    finally:
        performed.is_over = True
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


def refusal_of(known: Tool, one: OpenCall) -> str | None:
    """Return what the model is told of an argument that the annotations exclude; None if none is.

    What is no JSON object, and names that are missing or unknown, the call itself refuses.
    """
    try:
        arguments = e.Call(one.call.call_id, one.call.name, one.call.arguments_json).arguments
    except ValueError:
        return None
    wrong = wrong_argument(known.definition.parameters_json, arguments)
    if wrong is None:
        return None
    return text_of_result(f"The tool {known.name!r} was not called: {wrong}. Correct the argument.")


async def called(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function of the program: an async one here, any other in a thread.

    Raises what it raises. What is no Exception, such as an exit, is a RuntimeError: it
    ends the function, not the event loop and everything in it.
    """
    if not inspect.iscoroutinefunction(function):
        found = await in_thread(partial(_result, partial(function, *args, **kwargs)))
    else:
        found = function(*args, **kwargs)
    return await _awaited(found) if inspect.isawaitable(found) else found


def _result(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception:
        raise
    except BaseException as ended:  # SystemExit, as argparse raises it
        raise _ended(ended) from ended


async def _awaited(found: Awaitable[Any]) -> Any:
    """Await what a function returned, in a task of its own: it may cancel that, and not the run.

    It is cancelled when the run is, which then waits for its end.
    """
    task = asyncio.create_task(_work_of(found))
    task.add_done_callback(look_at)  # how it ends is no concern of a run that is cancelled
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await to_its_end(asyncio.wait({task}))
        raise
    finally:
        if task.done() and inspect.iscoroutine(found):
            found.close()  # the task may not have begun
    if task.cancelled():
        raise _ended(asyncio.CancelledError())
    return task.result()


async def _work_of(found: Awaitable[Any]) -> Any:
    try:
        return await found
    except Exception:
        raise
    except GeneratorExit as closed:
        if not _is_running():
            raise  # the task itself is dropped, as with its loop
        raise _ended(closed) from closed
    except BaseException as ended:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # the task is cancelled, and not what it awaits
        raise _ended(ended) from ended


def _is_running() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:  # no event loop runs any more
        return False


def _ended(error: BaseException) -> RuntimeError:
    return RuntimeError(text_of_error(error))
