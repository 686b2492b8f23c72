"""Counts by key, compared with a counter that is searched."""

import random
from collections import Counter

from syncd.bounds.tally import Tally


def test_the_heaviest_key_is_one_that_a_search_finds() -> None:
    rng = random.Random(1)
    tally: Tally[int] = Tally()
    naive: Counter[int] = Counter()
    for _ in range(2_000):
        key = rng.randrange(6)
        if rng.random() < 0.5:
            tally.add(key)
            naive[key] += 1
        elif naive[key]:
            tally.remove(key)
            naive[key] -= 1
        assert tally.of(key) == naive[key]
        assert bool(tally) == any(naive.values())
        if tally:
            assert naive[tally.heaviest()] == max(naive.values())
