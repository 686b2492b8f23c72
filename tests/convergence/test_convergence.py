"""Whoever holds the covered entries alone sees the same conversation (spec/03-order §5, ORD-13)."""

from collections import Counter

from tests.convergence.check import check

LOGS = 200


def test_the_covered_entries_alone_give_the_digest_and_view_of_all() -> None:
    seen: Counter[str] = Counter()
    for seed in range(LOGS):
        seen += check(seed)
    for name in ("uncovered", "pending", "revoked keys", "resignations", "forked lanes", "seals"):
        assert seen[name] > LOGS // 2, f"these logs hardly have {name}"
