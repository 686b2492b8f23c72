"""What becomes of a tool's value, and of what it raises."""

import asyncio
import gc
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest

import antiphon
from antiphon.library.io import in_thread
from antiphon.library.io.tool_calls import call_tool, is_performed_here
from antiphon.library.tools import Tool, text_of_result, tool
from replica.conversation import Asked, OpenCall
from replica.ids import EntryId, PublicKey
from replica.log import ToolCall
from tests.antiphon.library.conftest import Lab
from tests.support.scripted_host import Asked as Request
from tests.support.scripted_host import Token, words

FORMS = ["blocking"]

ENTRY, KEY = EntryId(bytes(32)), PublicKey(bytes(32))
UNSHOWN = "(a value of the type {}, which has no text)"


class Unshown:
    """Has no text."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Ended(BaseException):
    """Ends a program."""


class Unsaid(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def cycle() -> list[Any]:
    """Return a list that holds itself."""
    made: list[Any] = []
    made.append(made)
    return made


def deep() -> list[Any]:
    """Return a list in more lists than Python's stack has room for."""
    made: list[Any] = []
    for _ in range(100_000):
        made = [made]
    return made


async def called(known: Tool, arguments: str = "{}") -> tuple[str, bool]:
    """Return the result of a call, which has no arguments by default."""
    asked = Asked(KEY, KEY)
    call = ToolCall("0", known.name, arguments)
    return await call_tool(known, OpenCall(ENTRY, call, asked, ENTRY))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: {(1, 2): 3}, "{(1, 2): 3}"),
        (cycle, "[[...]]"),
        (deep, UNSHOWN.format("list")),
        (lambda: 10**5000, UNSHOWN.format("int")),
        (Unshown, UNSHOWN.format("Unshown")),
        (lambda: [Unshown()], UNSHOWN.format("list")),
    ],
)
async def test_a_tool_that_returned_has_not_failed(make: Callable[[], Any], text: str):
    assert await called(tool(name="act")(make_tool(make))) == (text, False)
    assert text_of_result(make()) == text  # so what `resolve` returns is a result too


def make_tool(make: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function without parameters."""

    def act() -> Any:
        return make()

    return act


async def test_a_parameter_may_have_any_name():
    """One that was called `function` was taken for the tool itself."""

    def find(function: str, self: str, args: str) -> str:
        return f"{function} {self} {args}"

    async def find_in_loop(function: str, self: str, args: str) -> str:
        return find(function, self, args)

    for one in (find, find_in_loop):
        arguments = '{"function": "len", "self": "a", "args": "b"}'
        assert await called(tool(one), arguments) == ("len a b", False)


async def test_an_error_without_a_text_is_told_by_its_type():
    def act() -> None:
        raise Unsaid

    async def act_in_loop() -> None:
        raise Unsaid

    for one in (act, act_in_loop):
        assert await called(tool(one)) == ("Unsaid: (no text)", True)


@pytest.mark.parametrize(
    "ended",
    [
        Ended("over"), BaseExceptionGroup("both", [Ended("over")]), KeyboardInterrupt(),
        SystemExit(3), GeneratorExit(), asyncio.CancelledError(),
    ],
)  # fmt: skip
async def test_an_end_that_a_tool_raises_is_told(ended: BaseException):
    def act() -> None:
        raise ended

    async def act_in_loop() -> None:
        raise ended

    for one in (act, act_in_loop):
        text, is_error = await called(tool(one))
        assert is_error
        assert text.startswith(f"RuntimeError: {type(ended).__name__}")


async def test_what_a_tool_leaves_behind_is_no_part_of_it():
    goes_on, seen, left = asyncio.Event(), list[bool](), list[asyncio.Task[None]]()

    async def later() -> None:
        seen.append(is_performed_here(ENTRY))
        await goes_on.wait()
        seen.append(is_performed_here(ENTRY))

    async def act() -> None:
        left.append(asyncio.create_task(later()))
        await asyncio.sleep(0)

    await called(tool(act))
    goes_on.set()
    await left[0]
    assert seen == [True, False]


async def test_the_end_of_the_run_ends_its_tool():
    began = asyncio.Event()

    async def act() -> None:
        began.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(called(tool(act)))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_tool_that_cancels_its_own_task_ends_no_run():
    async def act() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    text, is_error = await called(tool(act))
    assert (text, is_error) == ("RuntimeError: CancelledError: ", True)
    assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]


async def test_a_tool_goes_on_to_its_end_once_its_run_is_cancelled():
    began, closed = asyncio.Event(), asyncio.Event()

    async def act() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(str)  # as a connection that is closed in order
            closed.set()

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(called, tool(act))
            await began.wait()
            scope.cancel()
    assert closed.is_set()


async def test_the_error_of_a_tool_whose_run_is_cancelled_twice_is_no_news():
    """As by Ctrl-C twice, while the tool closes a connection."""
    began, closing, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: unseen.append(about))

    async def act() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            closing.set()
            await go_on.wait()

    task = asyncio.create_task(called(tool(act)))
    await began.wait()
    task.cancel()
    await closing.wait()
    task.cancel()
    go_on.set()
    await asyncio.wait({task})
    assert task.cancelled()
    del task
    gc.collect()
    assert not unseen


async def test_tools_that_wait_for_tools_of_their_own_all_end():
    """More of them than Python's pools of threads have: each holds one while it waits."""
    loop, count = asyncio.get_running_loop(), 50
    all_run = threading.Barrier(count)

    def outer() -> str:
        all_run.wait(10)
        inner = called(tool(make_tool(lambda: "inner"), name="inner"))
        return asyncio.run_coroutine_threadsafe(inner, loop).result()[0]

    results = await asyncio.gather(*(called(tool(outer)) for _ in range(count)))
    assert {*results} == {("inner", False)}


async def test_tools_wait_for_room_and_not_for_what_waits_for_them(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(in_thread, "THREADS_MAX", 1)
    monkeypatch.setattr(in_thread, "NESTED_MAX", 3)
    loop = asyncio.get_running_loop()

    def nested(depth: int) -> str:
        if not depth:
            return "inner"
        inner = called(named(partial(nested, depth - 1)))
        return asyncio.run_coroutine_threadsafe(inner, loop).result()[0]

    def named(function: Callable[[], str]) -> Tool:
        return tool(name="nested")(make_tool(function))

    results = await asyncio.gather(*(called(named(partial(nested, 2))) for _ in range(8)))
    assert {*results} == {("inner", False)}
    text, _ = await called(named(partial(nested, 3)))
    assert text.startswith("ArgumentInvalid: plain functions run inside each other 3 deep")


async def test_a_value_that_is_no_json_ends_no_run(lab: Lab):
    def reply(asked: Request) -> list[Token | ToolCall]:
        if asked.said.startswith("Act"):
            return [ToolCall(asked.request_id.hex()[:8], "act", "{}")]
        return list(words(f"Heard: {asked.said}"))

    @antiphon.tool(effect=True)
    def act() -> dict[Any, int]:
        return {(1, 2): 3}

    @antiphon.tool(name="act")
    async def ends() -> None:
        raise Ended("over")

    @antiphon.tool(name="act")
    def fails() -> None:
        raise Unsaid

    await lab.start_host(reply)
    async with lab.open() as me:
        trip = await me.conversation("trip")
        assert (await trip.ask("Act.", tools=[act])).text == "Heard: {(1, 2): 3}"
        assert (await trip.ask("Act.", tools=[ends])).text == "Heard: RuntimeError: Ended: over"
        assert (await trip.ask("Act.", tools=[fails])).text == "Heard: Unsaid: (no text)"
        assert await trip.open_calls() == ()


def test_a_tool_that_the_end_of_a_program_cancels_is_no_error_of_its_own() -> None:
    """asyncio.run prints what a task raises that it has cancelled."""
    said: list[dict[str, Any]] = []

    @tool
    async def book() -> str:
        """Book for ever."""
        await asyncio.Event().wait()
        return "never"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: said.append(context))
        calling = asyncio.create_task(called(book))
        while len(asyncio.all_tasks()) < 3:  # noqa: ASYNC110  # until the tool has begun
            await asyncio.sleep(0)
        assert not calling.done()

    asyncio.run(main())
    assert said == []
