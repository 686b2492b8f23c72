"""The part of a disk that derived files leave free."""

import pytest

from model_host.disk_reserve import RESERVE_BYTES_MAX, reserve_bytes, spare_bytes

MB, GB = 10**6, 10**9


@pytest.mark.parametrize(
    ("total", "reserve"),
    [(10 * MB, MB), (10 * GB, GB), (10_000 * GB, RESERVE_BYTES_MAX), (0, 0)],
)
def test_a_tenth_of_a_small_disk_stays_free_and_a_few_gigabytes_of_a_large_one(
    total: int, reserve: int
):
    assert reserve_bytes(total) == reserve


def test_what_is_free_beyond_the_reserve_may_be_taken():
    assert spare_bytes(10 * MB, 4 * MB) == 3 * MB
    assert spare_bytes(10 * MB, MB) == 0
    assert spare_bytes(10 * MB, 0) == -MB
