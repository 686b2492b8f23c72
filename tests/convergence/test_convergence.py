"""Whoever holds the covered entries alone sees the same conversation (spec/03-order §5, ORD-13)."""

from collections import Counter

from tests.convergence.check import check

LOGS = 200
FAILED_ONCE = (26_897, 42_403)
"""Logs in which a writer came and went while nobody asked for the parents of the next entry."""


def test_the_covered_entries_alone_give_the_digest_and_view_of_all() -> None:
    seen: Counter[str] = Counter()
    for seed in (*range(LOGS), *FAILED_ONCE):
        seen += check(seed)
    for name in ("uncovered", "pending", "revoked keys", "resignations", "forked lanes", "seals"):
        assert seen[name] > LOGS // 2, f"these logs hardly have {name}"
