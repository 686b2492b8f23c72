"""The naive next seals agree with those of a host on random logs, and these have all kinds."""

from collections import Counter

from antiphon.conformance.answers import answer
from antiphon.conformance.io.random_logs import random_cases
from antiphon.conformance.questions import differences


def test_both_next_seals_agree_on_random_logs() -> None:
    seen: Counter[str] = Counter()
    for seed in range(15):
        for case in random_cases(seed):
            if case.question["ask"] == "order":
                found = answer(case.question)
                assert differences(case, found) == [], case.name
                for seal in found["sealable"].values():
                    kind = "none" if seal is None else "at the root"
                    seen["extends" if seal and seal["prev_seal"] else kind] += 1
    assert min(seen[kind] for kind in ("none", "at the root", "extends")) > 10, seen
