"""The naive order agrees with the tree of seals on random logs."""

from collections import Counter

from antiphon.conformance.answers import answer
from antiphon.conformance.io.random_logs import random_cases
from antiphon.conformance.questions import differences


def test_both_orders_agree_on_random_logs() -> None:
    seen: Counter[str] = Counter()
    for seed in range(15):
        for case in random_cases(seed):
            if case.question["ask"] == "order":
                found = answer(case.question)
                assert differences(case, found) == [], case.name
                seen.update(seal["verdict"] for seal in found["seals"].values())
    assert set(seen) == {"counts", "void", "uncovered"}
    assert min(seen.values()) > 0
