"""Grammars of members are compiled in a process that may be killed doing so."""

import asyncio
import json
import time

import pytest

from model_host.grammar_source import GrammarSource
from model_host.io import grammar_checker
from model_host.io.grammar_checker import GrammarChecker
from model_host.refusals import GrammarInvalid


def lark(text: str) -> GrammarSource:
    return GrammarSource(json.dumps({"grammars": [{"name": "answer", "lark_grammar": text}]}))


def schema(value: object) -> GrammarSource:
    return GrammarSource(json.dumps({"grammars": [{"name": "answer", "json_schema": value}]}))


# Measured with llguidance 1.9.1: the first runs for hours, the second overflows the stack.
ENDLESS = schema({"allOf": [{"type": "string", "pattern": f".*{n}.*"} for n in range(60)]})
DEEP = lark("start: a0\n" + "\n".join(f'a{n}: "x" a{n + 1}' for n in range(6_000)) + '\na6000: "y"')


async def test_a_grammar_that_compiles_passes() -> None:
    await GrammarChecker().check(lark('start: "a"'))


async def test_a_grammar_that_does_not_compile_is_refused_in_the_engines_words() -> None:
    with pytest.raises(GrammarInvalid, match="unknown name"):
        await GrammarChecker().check(lark("start: nope"))


@pytest.mark.parametrize("source", [ENDLESS, DEEP], ids=["endless", "deep"])
async def test_a_grammar_that_would_hang_or_crash_the_host_is_refused(
    source: GrammarSource,
) -> None:
    with pytest.raises(GrammarInvalid, match="too much") as caught:
        await GrammarChecker().check(source)
    assert caught.value.is_costly


async def test_a_verdict_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    checker, good, bad = GrammarChecker(), lark('start: "a"'), lark("start: nope")
    await checker.check(good)
    with pytest.raises(GrammarInvalid):
        await checker.check(bad)
    monkeypatch.setattr(grammar_checker.sys, "executable", "/nowhere")
    began = time.monotonic()
    await checker.check(good)
    with pytest.raises(GrammarInvalid):
        await checker.check(bad)
    assert time.monotonic() - began < 0.1


async def test_a_verdict_of_the_clock_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    checker, good = GrammarChecker(), lark('start: "a"')
    with monkeypatch.context() as busy:
        busy.setattr(grammar_checker, "WALL_S_MAX", 0.0)
        with pytest.raises(GrammarInvalid, match="too much"):
            await checker.check(good)
    await checker.check(good)


class Started:
    """Counts the processes that are started, and tells when the first one is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.processes: list[asyncio.subprocess.Process] = []
        self.first = asyncio.Event()
        self._start = asyncio.create_subprocess_exec
        monkeypatch.setattr(grammar_checker.asyncio, "create_subprocess_exec", self)

    async def __call__(self, *command, **options) -> asyncio.subprocess.Process:
        self.processes.append(await self._start(*command, **options))
        self.first.set()
        return self.processes[-1]


async def test_of_many_requests_with_one_grammar_one_compiles_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, checker = Started(monkeypatch), GrammarChecker()
    good, bad = lark('start: "a"'), lark("start: nope")
    checks = [checker.check(source) for source in (good, bad) for _ in range(20)]
    found = await asyncio.gather(*checks, return_exceptions=True)
    assert found[:20] == [None] * 20
    assert all(isinstance(one, GrammarInvalid) and not one.is_costly for one in found[20:])
    assert len(started.processes) == 2


async def test_a_cancelled_caller_leaves_the_compilation_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, checker = Started(monkeypatch), GrammarChecker()
    first, second = (asyncio.create_task(checker.check(lark('start: "a"'))) for _ in range(2))
    await started.first.wait()
    first.cancel()
    await second
    assert first.cancelled()
    assert len(started.processes) == 1


async def test_a_compilation_ends_with_its_last_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    started, checker = Started(monkeypatch), GrammarChecker()
    checks = [asyncio.create_task(checker.check(ENDLESS)) for _ in range(2)]
    await started.first.wait()
    for check in checks:
        check.cancel()
    await asyncio.gather(*checks, return_exceptions=True)
    (process,) = started.processes
    assert process.returncode is not None
    await checker.check(lark('start: "a"'))  # and its place is free
