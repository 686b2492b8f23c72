"""The cases of the core, and their outcomes."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from antiphon.conformance.io.process import Answerer, CommandGone, NoAnswer
from antiphon.conformance.io.random_logs import random_cases
from antiphon.conformance.large import large_cases
from antiphon.conformance.questions import Case, cases_of, differences
from antiphon.conformance.report import Outcome


class VectorsMissing(Exception):
    """The vector files of the kit are not here."""


VECTORS = Path(__file__).parent.parent / "vectors"


def core_cases(*, first_seed: int = 0, logs: int = 20) -> Iterator[Case]:
    """Yield the cases of all vector files, those too large for these, and those of random logs.

    Raises VectorsMissing where a copy lacks the files, as one does that lost symbolic links.
    """
    paths = sorted(VECTORS.glob("*.json"))
    if not paths:
        raise VectorsMissing(
            f"no vector files in {VECTORS}: install the package, or clone with symbolic links"
        )
    for path in paths:
        yield from cases_of(path.stem, json.loads(path.read_text()))
    yield from large_cases()
    for seed in range(first_seed, first_seed + logs):
        yield from random_cases(seed)


def judge(answerer: Answerer, cases: Iterable[Case]) -> Iterator[Outcome]:
    """Ask for each case, and yield its outcome. A case of a command that is gone is not run."""
    for case in cases:
        yield _outcome(answerer, case)


def _outcome(answerer: Answerer, case: Case) -> Outcome:
    try:
        answer = answerer.ask(case.question)
    except CommandGone as error:
        return Outcome(case, (), str(error))
    except NoAnswer as error:
        return Outcome(case, (str(error),))
    if answer.get("unknown") is True:
        problems = [f"the question {case.question['ask']} is not known"]
    else:
        problems = differences(case, answer)
    return Outcome(case, tuple(problems), answer=answer)
