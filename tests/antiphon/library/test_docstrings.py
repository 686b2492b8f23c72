"""Every public name has an example in its docstring, which runs on a real hub and host."""

import ast
import asyncio
import contextlib
import doctest
import importlib
import inspect
import io
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import antiphon
from antiphon import aio
from antiphon.library import events, tools
from replica.io.conversations import invitations, joining
from tests.antiphon.cli.conftest import World
from tests.antiphon.cli.processes import HOST_MODULE
from tests.support.background import Background
from tests.support.scripted_host import Asked, Token, ToolCall, words

WITHOUT = {"Event", "aio"}
"""A union, and a module, whose names are looked at themselves."""
NAMES = [name for name in antiphon.__all__ if name not in WITHOUT]
STARTED = {"local"}
"""Starts two processes: its blocking example is compared with the async one, which runs."""
PARSER, CHECKER = doctest.DocTestParser(), doctest.OutputChecker()


@antiphon.tool(effect=True)
def book(city: str) -> str:
    """Book nights in a city."""
    return f"booked in {city}"


def reply(asked: Asked) -> list[Token | ToolCall]:
    """Answer the questions of the examples."""
    if asked.said.startswith("Book"):
        return [ToolCall("1", "book", '{"city": "Rome"}')]
    return list(words("Paris." if "France" in asked.said else f"You said: {asked.said}"))


@pytest.fixture(autouse=True, scope="module")
def quick_answers_to_newcomers() -> Iterator[None]:
    """Look for newcomers, and for the answer to one, more often than in use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(invitations, "POLL_S", 0.1)
        patch.setattr(joining, "POLL_FIRST_S", 0.1)
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One hub and one host for all of them."""
    with Background() as background:
        made = World(tmp_path_factory.mktemp("docstrings"), background)
        made.start_hub()
        made.start_host(reply)
        yield made
        made.stop_host()
        made.stop_hub()


@pytest.fixture(scope="module")
def me(world: World) -> Iterator[antiphon.Replica]:
    """One replica for the blocking examples; each has a conversation of its own."""
    with antiphon.open(world.folder / "me", hub=world.address) as opened:
        yield opened


def examples(found: Any) -> list[doctest.Example]:
    return PARSER.get_examples(inspect.getdoc(found) or "")


def without_await(code: str) -> str:
    """Return the blocking form of an example."""
    for word, instead in (("async ", ""), ("await ", ""), ("aio.", "antiphon.")):
        code = code.replace(word, instead)
    return code


def raising(example: doctest.Example) -> contextlib.AbstractContextManager[object]:
    """Expect the error of an example, by its class; the words are those of the version."""
    if example.exc_msg is None:
        return contextlib.nullcontext()
    module, _, name = example.exc_msg.partition(":")[0].rpartition(".")
    return pytest.raises(getattr(importlib.import_module(module), name))


async def run(
    found: Any, known: dict[str, Any], world: World, folder: Path, *, blocking: bool = False
) -> None:
    """Run the examples of a docstring, with folders and an address of this test."""
    for example in examples(found):
        code = example.source.replace("~/", f"{folder}/").replace("127.0.0.1:7411", world.address)
        code = code.replace("local()", f"local({str(folder)!r}, host_module={HOST_MODULE!r})")
        code = without_await(code) if blocking else code
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        compiled = compile(code, "example", "single", flags=flags)
        with contextlib.redirect_stdout(io.StringIO()) as printed, raising(example):
            done = types.FunctionType(compiled, known)()
            if inspect.iscoroutine(done):
                await done
        wanted = example.want if example.exc_msg is None else ""
        assert CHECKER.check_output(wanted, printed.getvalue(), 0), (
            f"{example.source}{printed.getvalue()}instead of\n{example.want}"
        )


@pytest.mark.parametrize("name", [name for name in NAMES if name not in STARTED])
def test_the_example_of_a_name_runs(
    name: str, world: World, me: antiphon.Replica, tmp_path: Path
) -> None:
    found = getattr(antiphon, name)
    assert examples(found), f"{name} has no example"
    known = {**vars(events), **vars(tools), "antiphon": antiphon, "book": book}
    coroutine = run(found, known | {"me": me, "trip": me.conversation(name)}, world, tmp_path)
    with pytest.raises(StopIteration):
        coroutine.send(None)  # it awaits nothing


@pytest.mark.parametrize("name", aio.__all__)
def test_the_example_of_an_async_name_runs(name: str, world: World, tmp_path: Path) -> None:
    async def work() -> None:
        known = {"antiphon": antiphon, "aio": aio}
        async with aio.open(tmp_path / "me", hub=world.address) as me:
            trip = await me.conversation("trip")
            await run(found, known | {"me": me, "trip": trip}, world, tmp_path)

    found = getattr(aio, name)
    assert examples(found), f"aio.{name} has no example"
    asyncio.run(work())


def methods_of(kind: Any) -> list[tuple[str, Any]]:
    """Return the public methods and properties of a class of the async form, with its bases'."""
    found = inspect.getmembers(kind, lambda one: callable(one) or isinstance(one, property))
    names = {name for name in dir(getattr(antiphon, kind.__name__)) if not name.startswith("_")}
    return [(name, one) for name, one in found if name in names]


METHODS = [
    pytest.param(kind, name, one, id=f"{kind.__name__}.{name}")
    for kind in (aio.Replica, aio.Conversation, aio.Run)
    for name, one in methods_of(kind)
]


@pytest.mark.parametrize(("kind", "name", "method"), METHODS)
def test_the_example_of_a_method_runs_without_await(
    kind: type, name: str, method: Any, world: World, me: antiphon.Replica, tmp_path: Path
) -> None:
    assert examples(method), f"{kind.__name__}.{name} has no example"
    known = {**vars(events), "antiphon": antiphon, "book": book, "me": me}
    trip = me.conversation(name if kind is aio.Conversation else f"{kind.__name__}.{name}")
    coroutine = run(method, known | {"trip": trip}, world, tmp_path, blocking=True)
    with pytest.raises(StopIteration):
        coroutine.send(None)  # it awaits nothing


def test_the_examples_of_the_methods_run_in_the_async_form(world: World, tmp_path: Path) -> None:
    """Its reason for 4 s: 26 examples, each in a conversation of its own."""

    async def work() -> None:
        async with aio.open(tmp_path / "me", hub=world.address) as me:
            for method in METHODS:
                kind, name, found = method.values
                trip = await me.conversation(f"{kind.__name__}.{name}")  # type: ignore[union-attr]
                if name == "title":
                    await trip.rename("title")
                known = {"antiphon": antiphon, "aio": aio, "book": book, "me": me, "trip": trip}
                await run(found, known, world, tmp_path / str(method.id))

    asyncio.run(work())


@pytest.mark.parametrize("name", aio.__all__)
def test_the_blocking_example_is_the_async_one_without_await(name: str) -> None:
    there = "".join(e.source + e.want for e in examples(getattr(aio, name)))
    here = "".join(e.source + e.want for e in examples(getattr(antiphon, name)))
    assert here == without_await(there)


@pytest.mark.parametrize(("kind", "name", "method"), METHODS)
def test_a_method_has_the_same_words_in_both_forms(kind: type, name: str, method: Any) -> None:
    here = getattr(getattr(antiphon, kind.__name__), name)
    texts = [(inspect.getdoc(one) or "").partition(">>>")[0].strip() for one in (here, method)]
    assert texts[0] == texts[1]
