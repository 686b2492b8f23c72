"""Grammars of members are compiled in a process that may be killed doing so."""

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
