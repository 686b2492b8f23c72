"""The process under test: what is no answer, and what happens then."""

import sys

import pytest

from antiphon.conformance.io import Answerer, CommandUnusable, judge
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


@pytest.mark.parametrize("answer", ["no json", "[]", '{"number": 7}', ""])
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


def test_a_command_that_does_not_start_is_unusable() -> None:
    with pytest.raises(CommandUnusable):
        Answerer(["/does/not/exist"])


def test_a_kind_that_is_not_known_fails() -> None:
    script = ECHO.replace("line, end=''", "line.replace('}', ', \"unknown\": true}'), end=''")
    stranger = answerer(script)
    (outcome,) = judge(stranger, [Case("name", ("ENT-3",), {"ask": "weather"}, {})])
    assert outcome.problems == ("the question weather is not known",)
    stranger.close()
