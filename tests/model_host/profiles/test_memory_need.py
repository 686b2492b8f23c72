"""The memory of a model is estimated from its header, and no context is longer than it holds."""

from dataclasses import replace

import pytest

from model_host.engine.torch_engine import TorchEngine
from model_host.kv import PagePool
from model_host.model_config import ModelConfig
from model_host.profiles.memory_need import (
    context_tokens_max,
    kv_bytes_min,
    position_bytes,
    weights_bytes,
)
from tests.model_host.engine import tiny_model

CONFIG = replace(tiny_model.LLAMA, context_tokens=100_000)


def test_a_position_needs_what_the_memory_says(tiny: TorchEngine) -> None:
    assert position_bytes(tiny.config, "fp32") == tiny.memory.bytes_per_token
    assert position_bytes(tiny.config, "bf16") * 2 == tiny.memory.bytes_per_token


@pytest.mark.parametrize("groups", [9, 10, 17, 40])
def test_the_longest_context_fits_the_pool_and_a_longer_one_does_not(
    tiny: TorchEngine, groups: int
) -> None:
    kv_bytes = groups * 64 * position_bytes(CONFIG, "fp32") + 7
    longest = context_tokens_max(CONFIG, "fp32", limit=100_000, kv_bytes=kv_bytes)
    pool = PagePool(tiny.memory, tail_slots=2, budget_bytes=kv_bytes)
    assert longest == pool._slabs.capacity_groups * 64


def test_the_least_of_the_three_limits_decides() -> None:
    config = replace(CONFIG, context_tokens=300)
    assert context_tokens_max(config, "bf16", limit=8192, kv_bytes=1 << 30) == 300
    assert context_tokens_max(config, "bf16", limit=200, kv_bytes=1 << 30) == 200
    assert context_tokens_max(config, "bf16", limit=200, kv_bytes=0) < 1


def test_the_least_memory_holds_a_context_and_a_byte_less_holds_none() -> None:
    least = kv_bytes_min(CONFIG, "bf16")
    assert context_tokens_max(CONFIG, "bf16", limit=200, kv_bytes=least) == 64
    assert context_tokens_max(CONFIG, "bf16", limit=200, kv_bytes=least - 1) < 1


def test_the_weights_of_the_default_model_are_estimated_to_a_tenth() -> None:
    smol = ModelConfig(30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5, 1e-5, tied=True)
    matrices = 30 * ((9 + 6) * 64 * 576 + 576 * 576 + 3 * 1536 * 576)
    held = 2 * (matrices + 2 * 49152 * 576)
    assert abs(weights_bytes(smol, "bf16") / held - 1) < 0.1
    assert weights_bytes(smol, "fp32") == 2 * weights_bytes(smol, "bf16")
    assert weights_bytes(smol, "q4") < weights_bytes(smol, "bf16")
