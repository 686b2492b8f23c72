"""The naive membership agrees with the fold on random logs, and these hold what matters."""

from collections import Counter

from antiphon.conformance.answers import answer
from antiphon.conformance.io.random_logs import random_cases
from antiphon.conformance.questions import differences


def test_both_folds_agree_on_random_logs() -> None:
    seen: Counter[str] = Counter()
    for seed in range(12):
        for case in random_cases(seed):
            if case.question["ask"] == "fold":
                found = answer(case.question)
                assert differences(case, found) == [], case.name
                seen["entries"] += len(case.question["entries"])
                seen["covered"] += len(found["covered"])
                seen["visible"] += len(found["visible"])
    assert seen["entries"] > seen["covered"] > seen["visible"] > 0
