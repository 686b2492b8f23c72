"""The recent units of payers and pools, kept as sums (LIM-8)."""

import random

from replica.ids import PublicKey
from replica.limits import HALF_LIFE_S
from syncd.bounds.shares import FORGOTTEN_UNITS, Payer, Shares
from tests.support.call_count import calls


def payer(pool: int, key: int) -> Payer:
    return Payer(bytes([pool]), PublicKey(key.to_bytes(32, "big")))


def test_the_sums_are_those_of_the_payers() -> None:
    chance, shares, now = random.Random(7), Shares(), 0.0
    charged: list[tuple[Payer, int, float]] = []
    payers = [payer(pool, key) for pool in range(4) for key in range(3)]
    for _ in range(2_000):
        now += chance.random() * 0.01
        one, units = chance.choice(payers), chance.randrange(1_000, 9_000)
        charged.append((one, units, now))
        shares.add(one, units, now)

        def recent(of: Payer, now: float = now) -> float:
            return sum(u * 0.5 ** ((now - at) / HALF_LIFE_S) for p, u, at in charged if p == of)

    by_payer = {one: recent(one) for one in payers}
    pools = {one.pool: 0.0 for one in payers}
    for one, units_now in by_payer.items():
        pools[one.pool] += units_now
        assert abs(shares.of(one, now) - units_now) < 1e-6 * units_now
    for one, units_now in by_payer.items():
        is_heavy_pool = pools[one.pool] >= sum(pools.values()) / len(pools)
        is_heavy = is_heavy_pool and units_now >= pools[one.pool] / 3
        assert shares.is_heavy(one, now) == is_heavy
    assert {shares.is_heavy(one, now) for one in payers} == {True, False}


def test_payers_alike_are_all_heavy() -> None:
    shares = Shares()
    alike = [payer(1, key) for key in range(97)]
    for one in alike:
        shares.add(one, 1_001, 0.0)
    assert all(shares.is_heavy(one, 1.0) for one in alike)


def test_those_that_did_nothing_lately_are_forgotten_with_their_pool() -> None:
    shares = Shares()
    idle = [payer(1, key) for key in range(20)]
    for one in idle:
        shares.add(one, 200, 0.0)
    busy = payer(2, 1)
    for _ in range(20):
        shares.add(busy, 10, 2.5 * HALF_LIFE_S)
    assert not any(one in shares for one in idle)
    assert busy in shares, "it has less units, and was charged now"
    assert shares.is_heavy(busy, 2.5 * HALF_LIFE_S), "the only pool left"
    assert shares.of(idle[0], 2.5 * HALF_LIFE_S) == 0


def test_what_still_counts_is_not_forgotten() -> None:
    shares, heavy, busy = Shares(), payer(1, 1), payer(2, 1)
    shares.add(heavy, int(8 * FORGOTTEN_UNITS), 0.0)
    for now in (HALF_LIFE_S, 2 * HALF_LIFE_S):
        shares.add(busy, 10, now)
        assert heavy in shares


def test_a_charge_and_a_question_cost_the_same_with_many_payers() -> None:
    def work(count: int) -> int:
        shares = Shares()
        for key in range(count):
            shares.add(payer(key % 7, key), 500, 0.0)
        one = payer(0, 0)
        return calls(lambda: (shares.add(one, 500, 30.0), shares.is_heavy(one, 30.0)))

    assert work(3_000) <= 1.2 * work(30)
