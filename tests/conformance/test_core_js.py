"""A core in another language, written from the text alone, passes the kit."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from antiphon.conformance.io import Answerer, core_cases, judge
from antiphon.conformance.report import failed

CORE = Path(__file__).parent / "core.js"
RANDOM_LOGS = 4
LINES_MAX = 900  # comments and blank lines included: the pure core fits into one short file


@pytest.mark.timeout(120)
def test_the_javascript_core_answers_every_question_rightly() -> None:
    node = shutil.which("node")
    assert node is not None, "install Node.js 20 or newer: this test runs a core written in it"
    answerer = Answerer([node, str(CORE)])
    try:
        outcomes = list(judge(answerer, core_cases(logs=RANDOM_LOGS)))
    finally:
        answerer.close()
    assert [(o.case.name, o.problems) for o in failed(outcomes)] == []
    asked = Counter(outcome.case.question["ask"] for outcome in outcomes)
    assert len(asked) == 18, "the core knows every kind of question"


def test_the_javascript_core_stays_a_short_file() -> None:
    lines = len(CORE.read_text(encoding="utf-8").splitlines())
    assert lines <= LINES_MAX, f"core.js has {lines} lines; give repeated forms one helper each"
