"""Every family and quantisation computes what a naive forward pass computes."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from bench.pages import Memory
from model_host.engine.gguf_file import open_model_file
from model_host.engine.numerics import _rows_agree, synthetic_model
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import Logits
from model_host.errors import (
    ModelArchitectureUnknown,
    ModelFileInvalid,
    ModelTensorMissing,
    NumericsUnsupported,
)
from model_host.model_config import ModelConfig
from tests.model_host.engine import tiny_model
from tests.model_host.engine.loading import load_random
from tests.model_host.engine.tiny_model import LLAMA

IDS = [int(i) for i in np.random.default_rng(4).integers(0, LLAMA.vocab, 70)]
WIDE = replace(LLAMA, width=256, ffn_width=512, head_width=64)
"""Rows of 256 and 512, as K-quants need."""
FAMILIES: dict[str, tuple[str, ModelConfig]] = {
    "llama": ("llama", LLAMA),
    "llama, tied": ("llama", replace(LLAMA, tied=True)),
    "llama, with bias": ("llama", replace(LLAMA, qkv_bias=True)),
    "qwen2": ("qwen2", replace(LLAMA, qkv_bias=True)),
    "qwen3": ("qwen3", replace(LLAMA, qk_norm=True, head_width=32, tied=True)),
    "qwen3, with bias": ("qwen3", replace(LLAMA, qk_norm=True, qkv_bias=True)),
}
FILES = pytest.mark.parametrize(("architecture", "config"), FAMILIES.values(), ids=FAMILIES)


def _run(engine: TorchEngine, *cuts: int) -> Logits:
    """Return the logits of every row of IDS, computed in pieces."""
    memory = Memory(engine)
    logits = memory.compute(memory.pages(0), IDS, cuts)
    memory.close()
    return logits


def _are_near(got: Logits, exact: tiny_model.Floats) -> bool:
    """Say whether logits differ by no more than bf16 rounds off."""
    error, size = np.abs(got - exact), np.abs(exact).max()
    return bool(error.max() < 0.1 * size and error.mean() < 0.01 * size)


def _layers_in(kind: Kind) -> Callable[[str], Kind | None]:
    """Quantise the matrices of the layers alone."""
    return lambda name: kind if name.startswith("blk.") and "norm" not in name else None


def _matrices_in(kind: Kind) -> Callable[[str], Kind | None]:
    return lambda name: None if "norm" in name or "bias" in name else kind


@FILES
def test_fp32_agrees_with_a_naive_forward(
    tmp_path: Path, architecture: str, config: ModelConfig
) -> None:
    path = tiny_model.write(tmp_path / "model.gguf", config, architecture=architecture)
    engine = load_random(path, "fp32")
    assert replace(engine.file.config, context_tokens=LLAMA.context_tokens) == config
    naive = tiny_model.naive_logits(engine.file, IDS)
    assert np.abs(_run(engine, 70) - naive).max() < 1e-3
    assert engine.bitwise
    assert np.array_equal(_run(engine, 1, 40, 1, 28), _run(engine, 70))


@FILES
def test_q4_agrees_with_a_naive_forward(
    tmp_path: Path, architecture: str, config: ModelConfig
) -> None:
    kind = _layers_in(Kind.Q4_1)
    path = tiny_model.write(
        tmp_path / "model.gguf",
        config,
        architecture=architecture,
        kind_of=lambda name: None if "bias" in name else kind(name),
    )
    engine = load_random(path, "q4")
    assert engine.model.layers[0].qkv.kernel == "int4"
    naive = tiny_model.naive_logits(engine.file, IDS)
    assert _are_near(_run(engine, 70), naive)
    assert engine.bitwise
    assert np.array_equal(_run(engine, 1, 40, 1, 28), _run(engine, 70))


KINDS = [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q5_0, Kind.Q5_1, Kind.Q4_0, Kind.Q4_1]
K_QUANTS = [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K]


@pytest.mark.parametrize("first", [0, 5])
def test_every_quantisation_loads_unpacked(tmp_path: Path, first: int) -> None:
    """Each in another matrix of one file; test_gguf_file has their numbers one by one."""
    matrices = [name for name in tiny_model.tensors(WIDE) if "norm" not in name]
    kinds = itertools.cycle([*KINDS, *K_QUANTS])
    kind_of = dict(zip(matrices, itertools.islice(kinds, first, None), strict=False))
    assert set(kind_of.values()) == {*KINDS, *K_QUANTS}
    path = tiny_model.write(tmp_path / "model.gguf", WIDE, kind_of=kind_of.get)
    engine = load_random(path, "fp32")
    naive = tiny_model.naive_logits(engine.file, IDS)
    assert np.abs(_run(engine, 70) - naive).max() < 1e-3 * max(1, np.abs(naive).max())


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q4_K], ids=lambda kind: kind.name)
def test_matrices_of_four_bits_are_run_as_they_are(tmp_path: Path, kind: Kind) -> None:
    path = tiny_model.write(tmp_path / "model.gguf", WIDE, kind_of=_matrices_in(kind))
    q4 = load_random(path, "q4")
    for layer in q4.model.layers:
        matrices = (layer.qkv, layer.out, layer.gate_up, layer.down)
        assert {linear.kernel for linear in matrices} == {"int4"}
    assert q4.model.head.kernel == q4.model.shapes.linear != "plain"
    naive = tiny_model.naive_logits(q4.file, IDS)
    got = _run(q4, 70)
    assert _are_near(got, naive)
    assert np.array_equal(got, _run(q4, 1, 69))


def test_a_file_of_mixed_quantisations_runs_each_matrix_in_its_kernel(tmp_path: Path) -> None:
    def kind_of(name: str) -> Kind | None:
        if name in ("token_embd.weight", "blk.1.attn_v.weight", "blk.0.ffn_down.weight"):
            return Kind.Q6_K
        return _matrices_in(Kind.Q4_K)(name)

    path = tiny_model.write(tmp_path / "model.gguf", WIDE, kind_of=kind_of)
    engine = load_random(path, "q4")
    first, second = engine.model.layers
    assert first.qkv.kernel == "int4"
    assert first.down.kernel == engine.model.shapes.linear != "plain"
    assert second.qkv.kernel == engine.model.shapes.linear
    assert second.down.kernel == "int4"
    # The layers with each combination of kernels are tested, at every row count.
    tested = [name for name, _ in _rows_agree(engine.model)]
    sizes = engine.model.shapes.linear_sizes
    assert [tested.count(f"project rows={size}") for size in sizes] == [2] * len(sizes)
    assert engine.bitwise
    naive = tiny_model.naive_logits(engine.file, IDS)
    got = _run(engine, 70)
    assert _are_near(got, naive)
    assert np.array_equal(got, _run(engine, 1, 69))


def test_q4_is_refused_for_a_file_without_four_bit_layers(tmp_path: Path) -> None:
    for kind_of in (_matrices_in(Kind.Q8_0), lambda name: Kind.Q4_0 if "embd" in name else None):
        path = tiny_model.write(tmp_path / "model.gguf", kind_of=kind_of)
        with pytest.raises(NumericsUnsupported, match="no weights in Q4_0, Q4_1 or Q4_K"):
            load_random(path, "q4")


def test_the_canary_of_q4_is_a_class_of_its_own(tmp_path: Path) -> None:
    path = tiny_model.write(tmp_path / "model.gguf", kind_of=_layers_in(Kind.Q4_0))
    engines = [load_random(path, d) for d in ("q4", "bf16", "fp32")]
    assert len({engine.numerics_class for engine in engines}) == 3
    assert len({engine.namespace(b"salt").digest for engine in engines}) == 3
    assert [engine.memory.bytes_per_token for engine in engines] == [256, 256, 512]
    first, second = synthetic_model(LLAMA, "q4", engines[0].model.shapes).layers
    assert first.qkv.kernel == "int4"
    assert first.down.kernel == "int4"
    assert second.qkv.kernel == engines[0].model.shapes.linear != "plain"


def test_a_context_longer_than_the_attention_window_is_not_offered(tmp_path: Path) -> None:
    for window, context in ((100, 100), (5000, 1024), (0, 1024)):
        options = {"attention.sliding_window": window}
        path = tiny_model.write(tmp_path / "model.gguf", options=options)
        assert open_model_file(path).config.context_tokens == context


def test_rope_is_scaled_by_the_file_s_factors(tmp_path: Path) -> None:
    factors = np.linspace(1, 8, LLAMA.head_width // 2).astype(np.float32)
    path = tiny_model.write(tmp_path / "model.gguf", extra={"rope_freqs.weight": factors})
    engine = load_random(path, "fp32")
    assert engine.config.rope_divisors == tuple(map(float, factors))
    naive = tiny_model.naive_logits(engine.file, IDS)
    assert np.abs(_run(engine, 70) - naive).max() < 1e-3
    plain = load_random(tiny_model.write(tmp_path / "plain.gguf"), "fp32")
    assert np.abs(_run(plain, 70) - naive).max() > 0.1
    assert plain.namespace(b"").digest != engine.namespace(b"").digest


def test_linear_scaling_divides_all_frequencies(tmp_path: Path) -> None:
    options = {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
    path = tiny_model.write(tmp_path / "model.gguf", options=options)
    engine = load_random(path, "fp32")
    assert engine.config.rope_divisors == (2.0,) * 8
    naive = tiny_model.naive_logits(engine.file, IDS)
    assert np.abs(_run(engine, 70) - naive).max() < 1e-3


REFUSED: dict[str, tuple[dict[str, int | float | str], str]] = {
    "yarn": ({"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}, "yarn"),
    "experts": ({"expert_count": 8}, "experts"),
    "a logit scale": ({"logit_scale": 0.5}, "logit_scale"),
    "partial rotation": ({"rope.dimension_count": 8}, "8 rotated"),
}


@pytest.mark.parametrize(("options", "named"), REFUSED.values(), ids=REFUSED)
def test_an_option_that_the_engine_would_ignore_is_refused_by_name(
    tmp_path: Path, options: dict[str, int | float | str], named: str
) -> None:
    path = tiny_model.write(tmp_path / "model.gguf", options=options)
    with pytest.raises(ModelArchitectureUnknown, match=named):
        open_model_file(path)


def test_a_model_without_the_parts_of_its_family_is_refused(tmp_path: Path) -> None:
    for architecture, missing in (("qwen2", "attn_q.bias"), ("qwen3", "attn_q_norm")):
        path = tiny_model.write(tmp_path / "model.gguf", architecture=architecture)
        with pytest.raises(ModelTensorMissing, match=missing):
            open_model_file(path)
    path = tiny_model.write(tmp_path / "model.gguf", replace(LLAMA, qk_norm=True))
    with pytest.raises(ModelArchitectureUnknown, match="attn_k_norm"):
        open_model_file(path)


def test_rope_factors_that_are_no_divisors_are_refused(tmp_path: Path) -> None:
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        factors = np.full(LLAMA.head_width // 2, bad, np.float32)
        path = tiny_model.write(tmp_path / "model.gguf", extra={"rope_freqs.weight": factors})
        with pytest.raises(ModelFileInvalid, match="RoPE"):
            open_model_file(path)


def test_four_bits_are_as_near_to_fp32_as_bf16_on_the_real_model(
    engine_of: Callable[[str], TorchEngine],
) -> None:
    ids = [int(i) for i in np.random.default_rng(1).integers(17, 49152, 100)]
    logits = {}
    for name in ("q4", "bf16", "fp32"):
        memory = Memory(engine_of(name))
        pages = memory.pages(0)
        memory.last(pages, ids[:-64])
        logits[name] = memory.compute(pages, ids[-64:])
        memory.close()

    def divergence(name: str) -> float:
        """Return the mean divergence of the distributions from those in fp32."""
        logs = []
        for rows in (logits["fp32"], logits[name]):
            shifted = rows.astype(np.float64) - rows.max(-1, keepdims=True)
            logs.append(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
        return float((np.exp(logs[0]) * (logs[0] - logs[1])).sum(-1).mean())

    assert divergence("bf16") < 3e-3
    assert divergence("q4") < 1.5 * divergence("bf16")
