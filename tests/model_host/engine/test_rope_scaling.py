"""The divisors of RoPE frequencies are those of the model's makers."""

import math

import pytest

from model_host.engine.rope_scaling import combine, divisors
from model_host.errors import ModelArchitectureUnknown, ModelFileInvalid

LLAMA31 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def test_llama3_divides_long_waves_alone() -> None:
    """Follow transformers' rule: by wave lengths, with a blend between two of them."""
    found = divisors("llama3", LLAMA31, head_width=128, base=500_000.0)
    assert len(found) == 64
    for index, divisor in enumerate(found):
        length = 2 * math.pi * 500_000.0 ** (index / 64)
        if length < 8192 / 4:
            assert divisor == 1.0
        elif length > 8192:
            assert divisor == 8.0
        else:
            blend = (8192 / length - 1) / (4 - 1)
            assert math.isclose(1 / divisor, (1 - blend) / 8 + blend)
    assert (found.count(1.0), found.count(8.0)) == (29, 29)


def test_linear_scaling_divides_all_frequencies_alike() -> None:
    assert divisors("linear", {"factor": 4}, head_width=6, base=1e4) == (4, 4, 4)
    for kind in ("default", "none", ""):
        assert divisors(kind, {}, head_width=6, base=1e4) == ()


@pytest.mark.parametrize("kind", ["yarn", "dynamic", "longrope", "su"])
def test_another_scaling_is_refused_by_name(kind: str) -> None:
    with pytest.raises(ModelArchitectureUnknown, match=kind):
        divisors(kind, LLAMA31, head_width=128, base=1e4)


@pytest.mark.parametrize("bad", [None, 0, -1.0, math.nan, math.inf, "8", True])
def test_an_option_that_is_no_positive_number_is_refused(bad: object) -> None:
    for key in LLAMA31:
        with pytest.raises(ModelFileInvalid, match=key):
            divisors("llama3", LLAMA31 | {key: bad}, head_width=128, base=1e4)
    with pytest.raises(ModelFileInvalid, match="high_freq_factor"):
        divisors("llama3", LLAMA31 | {"low_freq_factor": 4.0}, head_width=128, base=1e4)


def test_two_scalings_multiply() -> None:
    assert combine((2.0, 2.0), (1.0, 4.0)) == (2.0, 8.0)
    assert combine((), (1.0, 4.0)) == combine((1.0, 4.0), ()) == (1.0, 4.0)
    with pytest.raises(ModelFileInvalid):
        combine((2.0,), (0.0,))
