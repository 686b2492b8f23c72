"""Grammars of members are compiled in a process that may be killed doing so."""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

import pytest

from model_host.grammar.source import GrammarSource, source_for
from model_host.io.profiles import grammar_checker
from model_host.io.profiles.grammar_checker import GrammarChecker
from model_host.refusals import GrammarInvalid
from model_host.rendering.tool_formats import HERMES
from replica.errors import HostError
from replica.ids import PublicKey
from replica.limits import GRAMMARS_MAX
from replica.log import Request, Sampling, ToolDefinition
from tests.support.signals import TurnedOff, blocked, ignored


def lark(text: str) -> GrammarSource:
    return GrammarSource(json.dumps({"grammars": [{"name": "answer", "lark_grammar": text}]}))


def schema(value: object) -> GrammarSource:
    return GrammarSource(json.dumps({"grammars": [{"name": "answer", "json_schema": value}]}))


def tools(count: int) -> GrammarSource:
    """Return the calls of tools, of which the last has arguments that nothing obeys."""
    bad = '{"type": "object", "required": ["a"], "additionalProperties": false}'
    offered = [ToolDefinition(f"tool_{number}", "", "") for number in range(count - 1)]
    request = Request(PublicKey(bytes(32)), Sampling())
    source = source_for(request, [*offered, ToolDefinition("bad", "", bad)], HERMES)
    assert source is not None
    return source


OWNER, OTHER = b"owner", b"other"

# Measured with llguidance 1.9.1: the first runs for hours, the second overflows the stack.
ENDLESS = schema({"allOf": [{"type": "string", "pattern": f".*{n}.*"} for n in range(60)]})
DEEP = lark("start: a0\n" + "\n".join(f'a{n}: "x" a{n + 1}' for n in range(6_000)) + '\na6000: "y"')


async def test_a_grammar_that_compiles_passes() -> None:
    await GrammarChecker().check(lark('start: "a"'), OWNER)


async def test_a_grammar_that_does_not_compile_is_refused_in_the_engines_words() -> None:
    with pytest.raises(GrammarInvalid, match="unknown name"):
        await GrammarChecker().check(lark("start: nope"), OWNER)


@pytest.mark.parametrize("source", [ENDLESS, DEEP], ids=["endless", "deep"])
async def test_a_grammar_that_would_hang_or_crash_the_host_is_refused(
    source: GrammarSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_checker, "GRAMMAR_CPU_S_MAX", 0.3)
    with pytest.raises(GrammarInvalid, match="too much") as caught:
        await GrammarChecker().check(source, OWNER)
    assert caught.value.is_costly


@pytest.mark.parametrize("turned_off", [ignored, blocked])
async def test_the_time_of_a_grammar_ends_where_its_signal_is_turned_off(
    turned_off: TurnedOff, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_checker, "GRAMMAR_CPU_S_MAX", 0.2)
    checker, began = GrammarChecker(), time.monotonic()
    with turned_off(signal.SIGVTALRM), pytest.raises(GrammarInvalid, match="too much"):
        await checker.check(ENDLESS, OWNER)
    assert time.monotonic() - began < grammar_checker.WALL_S_MAX


async def test_a_tool_is_named_whose_arguments_have_a_problem() -> None:
    with pytest.raises(GrammarInvalid, match="tool 'bad': Unsatisfiable schema") as caught:
        await GrammarChecker().check(tools(2), OWNER)
    assert not caught.value.is_costly


async def test_the_problem_stands_where_the_process_ends_as_it_looks_for_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To compile each of many again takes longer than all of them at once."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\ncat > /dev/null\necho Unsatisfiable schema\nkill -VTALRM $$\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(GrammarInvalid, match=r"^Unsatisfiable schema$") as caught:
        await GrammarChecker().check(tools(2), OWNER)
    assert not caught.value.is_costly


async def test_a_verdict_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    checker, good, bad = GrammarChecker(), lark('start: "a"'), lark("start: nope")
    await checker.check(good, OWNER)
    with pytest.raises(GrammarInvalid):
        await checker.check(bad, OWNER)
    monkeypatch.setattr(sys, "executable", "/nowhere")
    await checker.check(good, OWNER)
    with pytest.raises(GrammarInvalid):
        await checker.check(bad, OWNER)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_a_process_that_others_end_costs_no_grammar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Its verdict was kept: a good grammar was refused until the next start of the host."""
    checker, good = GrammarChecker(), lark('start: "a"')
    ended, program = tmp_path / "ended", tmp_path / "python"
    ends = f"mkdir {ended} 2>/dev/null && kill -{number.value} $$"
    program.write_text(f'#!/bin/sh\n{ends}\nexec {sys.executable} "$@"\n')
    program.chmod(0o700)
    with monkeypatch.context() as first:
        first.setattr(sys, "executable", str(program))
        await checker.check(good, OWNER)
    assert ended.is_dir()


async def test_a_process_that_others_end_each_time_blames_no_grammar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker, good, program = GrammarChecker(), lark('start: "a"'), tmp_path / "python"
    program.write_text("#!/bin/sh\nkill -KILL $$\n")
    program.chmod(0o700)
    with monkeypatch.context() as ending:
        ending.setattr(sys, "executable", str(program))
        with pytest.raises(HostError, match="ended by others"):
            await checker.check(good, OWNER)
    await checker.check(good, OWNER)


@pytest.mark.parametrize("program", ["/nowhere", "/bin/false"])
async def test_an_installation_without_the_process_is_not_blamed_on_the_grammar(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(HostError, match="does not run here") as caught:
        await GrammarChecker().check(lark('start: "a"'), OWNER)
    assert not isinstance(caught.value, GrammarInvalid)


async def test_a_verdict_of_the_clock_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    checker, good = GrammarChecker(), lark('start: "a"')
    with monkeypatch.context() as busy:
        busy.setattr(grammar_checker, "WALL_S_MAX", 0.0)
        with pytest.raises(GrammarInvalid, match="too much"):
            await checker.check(good, OWNER)
    await checker.check(good, OWNER)


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
    checks = [checker.check(source, OWNER) for source in (good, bad) for _ in range(20)]
    found = await asyncio.gather(*checks, return_exceptions=True)
    assert found[:20] == [None] * 20
    assert all(isinstance(one, GrammarInvalid) and not one.is_costly for one in found[20:])
    assert len(started.processes) == 2


async def test_an_owner_waits_behind_its_own_grammars_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[str] = []
    all_begun, going_on = asyncio.Event(), asyncio.Event()

    async def problem_of(source: GrammarSource) -> str:
        checked.append(source.text)
        if len(checked) == GRAMMARS_MAX:
            all_begun.set()
        await going_on.wait()
        return ""

    monkeypatch.setattr(grammar_checker, "_problem_of", problem_of)
    checker = GrammarChecker()
    many, one = [lark(f'start: "{number}"') for number in range(9)], lark('start: "other"')
    checks = [asyncio.create_task(checker.check(source, OWNER)) for source in many]
    gone = asyncio.create_task(checker.check(lark('start: "gone"'), OTHER))
    checks.append(asyncio.create_task(checker.check(one, OTHER)))
    await all_begun.wait()
    gone.cancel()
    going_on.set()
    await asyncio.gather(*checks)
    begun = GRAMMARS_MAX
    assert checked[:begun] == [source.text for source in many[:begun]]
    assert one.text in checked[begun : begun + 3]  # who has gone had a turn too
    assert len(checked) == 10


async def test_a_cancelled_caller_leaves_the_compilation_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, checker = Started(monkeypatch), GrammarChecker()
    first, second = (
        asyncio.create_task(checker.check(lark('start: "a"'), OWNER)) for _ in range(2)
    )
    await started.first.wait()
    first.cancel()
    await second
    assert first.cancelled()
    assert len(started.processes) == 1


async def test_a_compilation_ends_with_its_last_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    started, checker = Started(monkeypatch), GrammarChecker()
    checks = [asyncio.create_task(checker.check(ENDLESS, OWNER)) for _ in range(2)]
    await started.first.wait()
    for check in checks:
        check.cancel()
    await asyncio.gather(*checks, return_exceptions=True)
    (process,) = started.processes
    assert process.returncode is not None
    await checker.check(lark('start: "a"'), OWNER)  # and its place is free
