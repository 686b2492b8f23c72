"""The ranges of sampling parameters."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from replica.log.body import LogitBias, Sampling
from replica.log.sampling_range import RANGES, sampling_fault


@pytest.mark.parametrize("name", RANGES)
def test_both_ends_of_a_range_are_within_and_nothing_beyond(name: str) -> None:
    low, high = RANGES[name]
    for value, is_within in ((low, True), (high, True), (low - 1, False), (high * 2 + 1, False)):
        fault = sampling_fault(replace(Sampling(), **{name: value}))
        assert (fault is None) == is_within, value


def test_no_number_a_tiny_divisor_and_a_large_bias_are_faults() -> None:
    assert "not a whole number" in (sampling_fault(Sampling(top_k=2.5)) or "")  # type: ignore[arg-type]
    assert "nan" in (sampling_fault(Sampling(temperature=float("nan"))) or "")
    assert "neither 0 nor" in (sampling_fault(Sampling(temperature=1e-4)) or "")
    assert "token 7" in (sampling_fault(Sampling(logit_bias=(LogitBias(7, 100.5),))) or "")


@pytest.mark.parametrize(
    ("ids", "words"),
    [((9, 5), "ascending"), ((5, 5), "token 5 twice"), ((-1,), "no token"), ((2**32,), "no token"),
     (("a",), "no token"), ((1.5,), "no token"), (range(1_025), "more than 1024")],
)  # fmt: skip
def test_biases_name_tokens_in_order(ids: Sequence[Any], words: str) -> None:
    biases = tuple(LogitBias(one, 1.0) for one in ids)
    assert words in (sampling_fault(Sampling(logit_bias=biases)) or "")
