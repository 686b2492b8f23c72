"""Whoever holds the covered entries alone sees the same conversation (spec/03-order §5, ORD-13)."""

from collections import Counter

from tests.convergence.check import DEEP, check

FIRST, LOGS = 100, 100
LONGEST = "seals in the longest chains"
FAILED_ONCE = (26_897, 42_403)
"""Logs in which a writer came and went while nobody asked for the parents of the next entry."""


def test_the_covered_entries_alone_give_the_digest_and_view_of_all() -> None:
    seen: Counter[str] = Counter()
    longest = 0
    for seed in (*range(FIRST, FIRST + LOGS), *FAILED_ONCE):
        found = check(seed)
        seen += found
        longest += found[LONGEST] if seed % DEEP == 0 else 0
    for name in ("uncovered", "pending", "revoked keys", "resignations", "forked lanes", "seals"):
        assert seen[name] > LOGS // 2, f"these logs hardly have {name}"
    assert longest > 10 * LOGS / DEEP, "the deep logs have long chains"
