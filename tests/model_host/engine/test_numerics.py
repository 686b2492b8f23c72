"""The self-test covers the closed set and finds a bad kernel; the canary separates classes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model_host.engine import attention, kernels, layers, numerics, shapes
from model_host.engine.model import Model
from model_host.engine.numerics import (
    machine_description,
    numerics_class,
    self_test,
    synthetic,
    verdict_key,
)
from model_host.engine.shapes import FAST, HALF, HEAD_ROWS_MAX, SAFE, Shapes
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import CHUNK_TOKENS
from model_host.kv import SLAB_TOKENS
from model_host.model_config import ModelConfig
from tests.model_host.engine import tiny_model
from tests.model_host.engine.loading import load_random

EXPECTED = ("0x1.126788p-2", "-0x1.9a718p-6", "0x1.88eb28p-2")

Result = tuple[torch.Tensor, torch.Tensor]


def test_the_self_test_passes_on_the_real_model(engine: TorchEngine) -> None:
    """Its verdict may be kept, of this machine, these weights and this code."""
    assert engine.tested.failures == ()
    assert engine.tested.shapes_run > 300


def test_the_self_test_runs_the_whole_closed_set(tiny: TorchEngine) -> None:
    sets, group = tiny.model.shapes, tiny.config.group
    with torch.inference_mode():
        names = {name for name, _ in numerics._checks(tiny.model)}
    assert len(names) == tiny.tested.shapes_run
    for rows in sets.linear_sizes:
        assert {f"project rows={rows}", f"out rows={rows}", f"feed_forward rows={rows}"} <= names
        assert rows > HEAD_ROWS_MAX or f"head rows={rows}" in names
    for rows in sets.query_sizes(group):
        assert rows > SLAB_TOKENS * group or f"attention rows={rows} without a mask" in names
        for keys in sets.key_cuts:
            # No call has more tokens than keys.
            fits = any(sets.query_rows(count * group) == rows for count in range(1, keys + 1))
            assert not fits or f"attention rows={rows} keys={keys}" in names


@pytest.mark.parametrize("chosen", [FAST, HALF, SAFE])
def test_every_step_runs_in_a_shape_of_the_closed_set(chosen: shapes.Shapes) -> None:
    for count in range(1, CHUNK_TOKENS + 1):
        assert count <= chosen.bucket(count) <= chosen.linear_rows(count)
        assert chosen.linear_rows(count) in chosen.linear_sizes
        parts = list(chosen.head_sizes(count))
        assert sum(real for real, _ in parts) == count
        assert all(real <= padded <= HEAD_ROWS_MAX for real, padded in parts)
        assert count <= chosen.key_cut(count) <= SLAB_TOKENS
        for group in (1, 2, 3, 4, 8):
            rows = chosen.query_rows(count * group)
            assert rows in chosen.query_sizes(group)
            assert count * group <= rows < count * group + shapes.QUERY_STEP_MAX
            assert rows % 4 == 0  # kernels for 1 to 3 rows, and such a rest of 32, differ


def test_a_linear_layer_whose_rows_depend_on_their_number_is_caught(
    tiny: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sloppy(model: Model, hidden: layers.Residual) -> torch.Tensor:
        return layers.head(model, hidden) * (1 + 1e-6 * (len(hidden.rows) == 8))

    monkeypatch.setattr(numerics, "head", sloppy)
    assert self_test(tiny.model).failures == ("head rows=8",)


def _planted(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[torch.Tensor, torch.Tensor], bool]
) -> None:
    """Make attention's lse differ by one bit where `wrong(query, keys)`."""
    right = kernels.attend

    def planted(
        query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> Result:
        result, lse = right(query, keys, values, mask)
        if wrong(query, keys):
            lse = torch.nextafter(lse, torch.full_like(lse, float("inf")))
        return result, lse

    monkeypatch.setattr(kernels, "attend", planted)


def test_attention_that_depends_on_the_number_of_rows_is_caught(
    tiny: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _planted(monkeypatch, lambda query, keys: query.shape[2] == 28)
    failures = self_test(tiny.model).failures
    cuts = [f"attention rows=28 keys={keys}" for keys in tiny.model.shapes.key_cuts]
    assert set(failures) == {*cuts, "attention rows=28 without a mask"}


def test_attention_that_depends_on_the_number_of_keys_is_caught(
    tiny: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _planted(monkeypatch, lambda query, keys: keys.shape[2] == 192)
    failures = self_test(tiny.model).failures
    assert failures
    assert all("keys=192" in name for name in failures)


def test_attention_that_depends_on_the_slabs_of_a_call_is_caught(
    tiny: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _planted(monkeypatch, lambda query, keys: len(keys) == 3)
    failures = self_test(tiny.model).failures
    assert failures
    assert all("of 3 slabs" in name for name in failures)


def test_a_mask_that_changes_bits_is_caught(
    tiny: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = kernels.attend

    def planted(
        query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> Result:
        result, lse = right(query, keys, values, mask)
        return result, lse if mask is None else lse * (1 + 2**-23)

    monkeypatch.setattr(kernels, "attend", planted)
    assert any("without a mask" in name for name in self_test(tiny.model).failures)


def test_a_merge_by_reductions_is_caught(
    tiny: TorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's softmax and sum over the slabs differ with the number of rows, in float32."""

    def reduce(merge: attention.Merge) -> None:
        weights = torch.softmax(merge.lse, 0)[..., None]
        merge.context.copy_((merge.results * weights).sum(0))

    monkeypatch.setattr(attention, "merge_parts", reduce)
    assert any(name.startswith("merge") for name in self_test(tiny.model).failures)


def test_the_class_depends_on_the_arithmetic_alone(
    tiny: TorchEngine, tmp_path: Path, engine_of: Callable[[str], TorchEngine]
) -> None:
    config, chosen = tiny.config, tiny.model.shapes
    fp32 = numerics_class(config, "fp32", chosen)
    assert fp32 == tiny.numerics_class
    assert numerics_class(config, "fp32", SAFE) != numerics_class(config, "bf16", SAFE)
    other = {k: v for k, v in tiny_model.tensors(seed=2).items() if "norm" not in k}
    path = tiny_model.write(tmp_path / "other.gguf", extra=other)
    assert load_random(path, "fp32").numerics_class == fp32
    assert engine_of("bf16").numerics_class != engine_of("fp32").numerics_class


def test_the_class_is_the_same_for_any_number_of_threads(tiny: TorchEngine) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)  # it was loaded with one
        assert numerics_class(tiny.config, "fp32", tiny.model.shapes) == tiny.numerics_class
    finally:
        torch.set_num_threads(before)


def test_the_verdict_depends_on_machine_model_shapes_and_code(tiny: TorchEngine) -> None:
    machine, config = machine_description(), tiny.config

    def key(
        found: dict[str, str] = machine,
        model: ModelConfig = config,
        numerics: str = "bf16",
        shapes: Shapes = FAST,
        weights: bytes = b"w",
        code: bytes = b"c",
    ) -> bytes:
        return verdict_key(found, model, numerics, shapes, weights=weights, code=code)

    keys = {
        key(),
        key(numerics="fp32"),
        key(shapes=SAFE),
        key(model=replace(config, ffn_width=128)),
        key(weights=b"other"),
        key(code=b"other"),
        *(key({**machine, name: "other"}) for name in machine),
    }
    assert len(keys) == 6 + len(machine)
    assert key(shapes=replace(FAST, keys_max=99)) in keys
    assert all(len(each) == 32 for each in keys)


def test_a_variable_that_chooses_kernels_is_part_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = machine_description()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert machine_description() != before


def test_synthetic_numbers_are_the_same_on_every_machine() -> None:
    values = synthetic((1000, 8), 5, 1.0)
    assert values.shape == (1000, 8)
    assert float(values.abs().max()) <= 1.0
    assert abs(float(values.double().mean())) < 0.02
    assert values[0, :3].tolist() == [float.fromhex(x) for x in EXPECTED]
    assert not np.array_equal(values, synthetic((1000, 8), 6, 1.0))
