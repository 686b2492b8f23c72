"""So many at once, and then so many per second."""

import pytest

from syncd.bounds.bucket import Bucket


def test_some_are_taken_at_once_and_the_others_in_time() -> None:
    bucket = Bucket(per_s=4.0, most=2)
    assert [bucket.take(10.0) for _ in range(3)] == [True, True, False]
    assert bucket.wait_s(10.0) == pytest.approx(0.25)
    assert not bucket.take(10.2)
    assert bucket.wait_s(10.2) == pytest.approx(0.05)
    assert bucket.take(10.25)
    assert not bucket.take(10.25)


def test_what_nobody_takes_grows_up_to_a_bound() -> None:
    bucket = Bucket(per_s=4.0, most=2)
    assert bucket.take(0.0)
    assert bucket.wait_s(1_000.0) == 0.0
    assert [bucket.take(1_000.0) for _ in range(3)] == [True, True, False]


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = Bucket(per_s=4.0, most=1)
    assert bucket.take(10.0)
    assert not bucket.take(5.0)
    assert bucket.wait_s(5.0) == pytest.approx(0.25)
