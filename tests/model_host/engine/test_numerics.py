"""The self-test covers the closed set and finds a bad kernel; the canary separates classes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model_host.engine import shapes
from model_host.engine.numerics import numerics_class, self_test, synthetic
from model_host.engine.shapes import FAST, SAFE
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import CHUNK_TOKENS
from tests.model_host.engine import tiny_model

EXPECTED = ("0x1.126788p-2", "-0x1.9a718p-6", "0x1.88eb28p-2")


def test_the_self_test_passes_on_the_real_model(engine: TorchEngine) -> None:
    assert engine.bitwise, engine.tested.failures
    sets = engine.model.shapes
    smaller = len(sets.row_buckets) - 1
    keys = len(sets.key_buckets)
    rows = {sets.linear_rows(bucket) for bucket in sets.row_buckets}
    # Four row functions at each row count; attention at each pair, and its last bucket
    # against itself from one key bucket to the next.
    assert engine.tested.shapes_run == 4 * len(rows) + keys * smaller + keys - 1


@pytest.mark.parametrize("chosen", [FAST, SAFE])
def test_every_step_runs_in_a_shape_of_the_closed_set(chosen: shapes.Shapes) -> None:
    rows = {chosen.linear_rows(bucket) for bucket in chosen.row_buckets}
    for count in range(1, CHUNK_TOKENS + 1):
        assert chosen.bucket(count) >= count
        assert chosen.linear_rows(count) in rows
        for group in (1, 2, 3, 4, 8):
            queries = {chosen.query_rows(bucket, group) for bucket in chosen.row_buckets}
            assert chosen.query_rows(count, group) in queries
            assert chosen.query_rows(count, group) >= count * group
            assert chosen.query_rows(count, group) % chosen.query_multiple == 0
    for tokens in range(1, chosen.keys_max + 1):
        assert chosen.keys(tokens) in chosen.key_buckets
        assert tokens <= chosen.keys(tokens) < tokens + 512


def test_a_kernel_whose_rows_depend_on_their_number_is_caught(tiny: TorchEngine) -> None:
    def sloppy(rows: torch.Tensor) -> torch.Tensor:
        return tiny.model.head(rows) * (1 + 1e-6 * (len(rows) == 8))

    tested = self_test(replace(tiny.model, head=sloppy))
    assert not tested.passed
    assert tested.failures == ("head rows=8",)


def test_the_class_depends_on_the_arithmetic_alone(
    tiny: TorchEngine, tmp_path: Path, engine_of: Callable[[str], TorchEngine]
) -> None:
    config, chosen = tiny.config, tiny.model.shapes
    fp32 = numerics_class(config, "fp32", chosen)
    assert fp32 == tiny.numerics_class
    assert fp32 != numerics_class(config, "bf16", chosen)
    other = {k: v for k, v in tiny_model.tensors(seed=2).items() if "norm" not in k}
    path = tiny_model.write(tmp_path / "other.gguf", extra=other)
    assert TorchEngine.load(path, numerics="fp32", threads=2).numerics_class == fp32
    assert engine_of("bf16").numerics_class != engine_of("fp32").numerics_class


def test_the_class_is_the_same_for_any_number_of_threads(tiny: TorchEngine) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert numerics_class(tiny.config, "fp32", tiny.model.shapes) == tiny.numerics_class
    finally:
        torch.set_num_threads(before)


def test_synthetic_numbers_are_the_same_on_every_machine() -> None:
    values = synthetic((1000, 8), 5, 1.0)
    assert values.shape == (1000, 8)
    assert float(values.abs().max()) <= 1.0
    assert abs(float(values.double().mean())) < 0.02
    assert values[0, :3].tolist() == [float.fromhex(x) for x in EXPECTED]
    assert not np.array_equal(values, synthetic((1000, 8), 6, 1.0))
