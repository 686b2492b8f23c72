"""Large questions: our own core answers them as they require."""

from antiphon.conformance.answers import answer
from antiphon.conformance.large import large_cases
from antiphon.conformance.questions import differences


def test_our_core_answers_large_questions_rightly() -> None:
    cases = list(large_cases())
    assert len({case.name for case in cases}) == len(cases) == 5
    for case in cases:
        assert differences(case, answer(case.question)) == [], case.name
