"""The process under test: what is no answer, and what happens then."""

import sys
from pathlib import Path

import pytest

from antiphon.conformance.io import Answerer, CommandUnusable, judge, process
from antiphon.conformance.io.client import CASES, run_clients
from antiphon.conformance.io.process import NoAnswer
from antiphon.conformance.questions import Case

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
ODD = "import sys\nsys.stdin.readline(); print({answer!r}, flush=True); sys.stdin.readline()"


def answerer(script: str) -> Answerer:
    return Answerer([sys.executable, "-c", script])


def test_each_answer_belongs_to_its_question() -> None:
    echo = answerer(ECHO)
    assert [echo.ask({"ask": n})["ask"] for n in range(3)] == [0, 1, 2]
    echo.close()


@pytest.mark.parametrize(
    "answer", ["no json", "[]", '{"number": 7}', "", "[" * 100_000, '{"number": 1, "reason": NaN}']
)
def test_anything_else_is_no_answer(answer: str) -> None:
    odd = answerer(ODD.format(answer=answer))
    with pytest.raises(NoAnswer):
        odd.ask({"ask": "digest"})
    odd.close()


def test_a_command_that_ends_fails_its_question_and_is_started_again() -> None:
    once = answerer("import sys; print(sys.stdin.readline(), flush=True)")
    case = Case("name", ("ENT-3",), {"ask": "scan"}, {"ask": "scan"})
    outcomes = list(judge(once, [case, case, case]))
    assert [bool(outcome.problems) for outcome in outcomes] == [False, True, False]
    once.close()


CASE = Case("name", ("ENT-3",), {"ask": "scan"}, {"ask": "scan"})
LARGE = {"ask": "bundle", "bytes": "00" * 1_000_000}
"""More than a pipe holds."""


@pytest.mark.parametrize("script", ["input()", "print('{}'); input(); input()"])
def test_a_command_that_reads_nothing_gives_no_answer(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ANSWER_SECONDS_MAX", 0.2)
    deaf = answerer(f"import time; time.sleep(600); {script}")
    with pytest.raises(NoAnswer, match="no answer within"):
        deaf.ask(LARGE)
    deaf.close()


def test_a_command_that_ends_while_its_child_holds_the_pipes_has_ended() -> None:
    """It was waited for as one that is silent, for a minute."""
    child = "[sys.executable, '-c', 'import sys; sys.stdin.read()']"
    ended = answerer(f"import subprocess, sys; subprocess.Popen({child})")
    with pytest.raises(NoAnswer, match="the process ended"):
        ended.ask({"ask": "x"})
    ended.close()


def test_a_large_question_is_written_while_its_answer_is_read() -> None:
    echo = answerer("import os\nwhile part := os.read(0, 1024): os.write(1, part)")
    assert echo.ask(LARGE)["bytes"] == LARGE["bytes"]
    echo.close()


def test_a_line_that_never_ends_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ANSWER_BYTES_MAX", 1_000_000)
    endless = answerer("while True: print('x' * 65_536, end='')")
    with pytest.raises(NoAnswer, match="more than 1000000 bytes"):
        endless.ask({"ask": "digest"})
    endless.close()


def test_a_command_that_ends_again_and_again_leaves_the_rest_not_run() -> None:
    ends = answerer("input()")
    outcomes = list(judge(ends, [CASE] * (process.RESTARTS_MAX + 2)))
    assert [bool(o.problems) for o in outcomes] == [True] * process.RESTARTS_MAX + [False] * 2
    assert {o.not_run for o in outcomes if not o.problems} == {
        "the command ended, or wrote no answer, 20 times"
    }
    ends.close()


def test_a_command_that_never_answers_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ANSWER_SECONDS_MAX", 0.2)
    silent = answerer("import time; time.sleep(600)")
    first, second = judge(silent, [CASE, CASE])
    assert first.problems == ("no answer within 0.2 s",)
    assert second.not_run == "the command gave no answer at all within 0.2 s"
    silent.close()


ONCE = """
import pathlib, sys, time
if pathlib.Path({path!r}).exists(): time.sleep(600)
pathlib.Path({path!r}).touch()
for line in sys.stdin: print(line, end="", flush=True)
"""


def test_a_command_that_falls_silent_is_asked_some_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = answerer(ONCE.format(path=str(tmp_path / "answered")))
    once.ask(CASE.question)
    once.close()
    monkeypatch.setattr(process, "ANSWER_SECONDS_MAX", 0.1)
    outcomes = list(judge(once, [CASE] * (process.SILENCES_MAX + 1)))
    assert [bool(o.problems) for o in outcomes] == [True] * process.SILENCES_MAX + [False]
    assert outcomes[-1].not_run == "the command gave no answer within 0.1 s to 5 questions"
    once.close()


async def test_a_silent_client_fails_one_case_of_each_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "ANSWER_SECONDS_MAX", 0.2)
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    checks = list(CASES)[:4]
    outcomes = [o async for o in run_clients(checks, command, 2)]
    assert [o.problems for o in outcomes if o.problems] == [
        ("connect: no answer within 0.2 s",)
    ] * 2
    assert [o.not_run for o in outcomes if o.not_run] == [
        "the command gave no answer at all within 0.2 s"
    ] * 2


def test_a_command_that_does_not_start_is_unusable() -> None:
    with pytest.raises(CommandUnusable):
        Answerer(["/does/not/exist"])


def test_a_kind_that_is_not_known_fails() -> None:
    script = ECHO.replace("line, end=''", "line.replace('}', ', \"unknown\": true}'), end=''")
    stranger = answerer(script)
    (outcome,) = judge(stranger, [Case("name", ("ENT-3",), {"ask": "weather"}, {})])
    assert outcome.problems == ("the question weather is not known",)
    stranger.close()
