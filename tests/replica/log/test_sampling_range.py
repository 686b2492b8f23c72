"""The ranges of sampling parameters."""

from dataclasses import replace

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
