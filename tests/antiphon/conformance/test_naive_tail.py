"""The naive tails agree with those of the order on random logs, and these have some of each."""

from collections import Counter

from antiphon.conformance.answers import answer
from antiphon.conformance.io.random_logs import random_cases
from antiphon.conformance.questions import differences


def test_both_tails_agree_on_random_logs() -> None:
    seen: Counter[str] = Counter()
    for seed in (*range(6), 13, 328):  # the last two have messages that follow two branches
        for case in random_cases(seed):
            if case.question["ask"] == "order":
                found = answer(case.question)
                assert differences(case, found) == [], case.name
                for tail in found["tails"]:
                    seen["tips"] += tail["tip"] is not None
                    seen["with entries"] += bool(tail["entries"])
                    seen["with two ends"] += len(tail["frontier"]) > 1
    assert min(seen[name] for name in ("tips", "with entries", "with two ends")) > 10
