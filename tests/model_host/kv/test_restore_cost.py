"""Restore or compute: the formula, and the rates that it is given."""

import pytest

from model_host.kv.restore_cost import ROWS_MIN, Rates, RestoreCost, is_restoring_sooner

KIB = 1024
FAST_DISK, SLOW_DISK = 1 / 2e9, 1 / 2e6
LARGE_MODEL, SMALL_MODEL = 2e-3, 1e-5


@pytest.mark.parametrize(
    ("rates", "tokens", "token_bytes", "is_sooner"),
    [
        (Rates(), 1, KIB, True),
        (Rates(1.0, SLOW_DISK, None), 64, KIB, True),
        (Rates(None, None, SMALL_MODEL), 64, KIB, True),
        # 4,096 tokens of 22 KiB: 46 ms from a disk of 2 GB/s, 8 s to compute at 2 ms.
        (Rates(1e-3, FAST_DISK, LARGE_MODEL), 4096, 22 * KIB, True),
        # From a disk of 2 MB/s they take 46 s.
        (Rates(1e-3, SLOW_DISK, LARGE_MODEL), 4096, 22 * KIB, False),
        # A small model computes 64 tokens before a slow store has found them.
        (Rates(1e-3, FAST_DISK, SMALL_MODEL), 64, KIB, False),
        (Rates(1e-3, FAST_DISK, SMALL_MODEL), 640, KIB, True),
        # Equal times: restoring leaves the processor to others.
        (Rates(0.5, 0.25, 1.0), 2, 3, True),
        (Rates(0.5, 0.25, 1.0), 2, 4, False),
    ],
)
def test_what_is_sooner_by_the_rates_is_done(
    rates: Rates, tokens: int, token_bytes: int, is_sooner: bool
) -> None:
    assert is_restoring_sooner(rates, tokens, token_bytes) is is_sooner


def test_the_rates_follow_the_measurements() -> None:
    cost = RestoreCost()
    cost.observe_restored(find_s=0.1, load_s=1.0, nbytes=1000)
    cost.observe_computed(seconds=6.4, rows=ROWS_MIN)
    assert cost.rates == Rates(0.1, 1e-3, pytest.approx(6.4 / ROWS_MIN))
    for _ in range(60):
        cost.observe_restored(find_s=0.3, load_s=4.0, nbytes=2000)
        cost.observe_computed(seconds=100.0, rows=500)
    assert cost.rates == Rates(pytest.approx(0.3), pytest.approx(2e-3), pytest.approx(0.2))


def test_steps_of_few_rows_are_no_measurement() -> None:
    cost = RestoreCost()
    cost.observe_computed(seconds=9.0, rows=ROWS_MIN - 1)
    assert cost.rates.row_s is None


def test_a_store_that_was_slow_once_is_tried_again() -> None:
    cost = RestoreCost()
    cost.observe_restored(find_s=1.0, load_s=9.0, nbytes=1000)
    cost.observe_computed(seconds=1.0, rows=1000)
    refused = 0
    while not cost.decide(1000, 1):
        refused += 1
    assert refused == 11  # 10 s * 0.8^n falls below 1 s
