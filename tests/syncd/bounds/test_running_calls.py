"""A key has a number of unary calls at a time, and keys with many keep none out with few."""

from contextlib import ExitStack

import pytest

from replica.refusals import RateLimited
from syncd.bounds.running_calls import RunningCalls
from tests.support.writers import Writer

ADA, BOB = Writer(1).public, Writer(2).public


def test_a_call_beyond_the_bound_is_told_when_to_come_again() -> None:
    calls = RunningCalls(per_key_max=2)
    with calls.count(ADA):
        with calls.count(ADA), pytest.raises(RateLimited) as error, calls.count(ADA):
            pass
        assert error.value.retry_after_s
        assert error.value.detail == "2 calls of this key run"
        with calls.count(ADA), calls.count(BOB):
            pass
    assert not calls._of
    assert not calls._total


def test_a_key_with_few_calls_is_not_kept_out() -> None:
    calls = RunningCalls(per_key_max=8, total_max=8)
    with ExitStack() as running:
        for _ in range(4):
            running.enter_context(calls.count(ADA))
        with pytest.raises(RateLimited, match="4 calls of all keys run"), calls.count(ADA):
            pass
        with calls.count(BOB):
            pass
        for number in range(4):
            running.enter_context(calls.count(Writer(10 + number).public))
        with pytest.raises(RateLimited, match="8 calls of all keys run"), calls.count(BOB):
            pass
