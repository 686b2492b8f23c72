"""A Hugging Face folder computes what a naive forward pass does, or is refused by name."""

import hashlib
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.pages import Memory
from model_host.engine.hf_folder import open_folder
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import Logits
from model_host.errors import (
    ModelArchitectureUnknown,
    ModelFileError,
    ModelFileInvalid,
    ModelFileMissing,
    ModelFileTruncated,
    ModelTensorMissing,
    NumericsUnsupported,
)
from model_host.model_config import ModelConfig
from tests.model_host.engine import tiny_folder, tiny_model
from tests.model_host.engine.loading import load_random
from tests.model_host.engine.tiny_model import LLAMA
from tests.model_host.io.damage import flip_at

IDS = [int(i) for i in np.random.default_rng(4).integers(0, LLAMA.vocab, 50)]
FAMILIES: dict[str, tuple[str, ModelConfig]] = {
    "llama": ("llama", LLAMA),
    "llama, tied": ("llama", replace(LLAMA, tied=True)),
    "mistral": ("mistral", LLAMA),
    "qwen2": ("qwen2", replace(LLAMA, qkv_bias=True)),
    "qwen3": ("qwen3", replace(LLAMA, qk_norm=True, head_width=32, tied=True)),
}


def _run(engine: TorchEngine, *cuts: int) -> Logits:
    memory = Memory(engine)
    logits = memory.compute(memory.pages(0), IDS, cuts)
    memory.close()
    return logits


@pytest.mark.parametrize(("family", "config"), FAMILIES.values(), ids=FAMILIES)
def test_every_family_agrees_with_a_naive_forward(
    tmp_path: Path, family: str, config: ModelConfig
) -> None:
    folder = tiny_folder.write(tmp_path / "model", config, family=family)
    engine = load_random(folder, "fp32")
    assert engine.file.config == config
    naive = tiny_model.naive_logits(engine.file, IDS)
    assert np.abs(_run(engine, 50) - naive).max() < 1e-3
    assert engine.bitwise
    assert np.array_equal(_run(engine, 1, 30, 19), _run(engine, 50))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_two_bytes_are_read(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = tiny_folder.write(tmp_path / "model", dtype=dtype)
    for numerics, bound in (("fp32", 1e-3), ("bf16", 1.0)):
        engine = load_random(folder, numerics)
        naive = tiny_model.naive_logits(engine.file, IDS)
        assert np.abs(_run(engine, 50) - naive).max() < bound


def test_shards_are_one_model(tmp_path: Path) -> None:
    whole = load_random(tiny_folder.write(tmp_path / "whole"), "fp32")
    folder = tiny_folder.write(tmp_path / "shards", shards=3)
    shards = load_random(folder, "fp32")
    assert np.array_equal(_run(whole, 50), _run(shards, 50))


def test_a_folder_and_a_gguf_of_one_model_give_the_same_tokens_and_logits(tmp_path: Path) -> None:
    """GGUF's llama architecture has the query and key rows in another order."""

    def interleaved(name: str, rows: Any) -> Any:
        if not name.endswith(("attn_q.weight", "attn_k.weight")):
            return rows
        heads = len(rows) // LLAMA.head_width
        return rows.reshape(heads, 2, -1, LLAMA.width).swapaxes(1, 2).reshape(rows.shape)

    tensors = {name: interleaved(name, rows) for name, rows in tiny_model.tensors().items()}
    gguf = tiny_model.write(tmp_path / "model.gguf", extra=tensors, eos_id=0)
    folder = tiny_folder.write(tmp_path / "model")
    one, other = (load_random(path, "fp32") for path in (gguf, folder))
    assert one.file.tokenizer == other.file.tokenizer
    assert one.file.template == other.file.template
    assert np.array_equal(_run(one, 50), _run(other, 50))
    assert one.file.sha256 != other.file.sha256


def test_the_digest_is_that_of_what_sha256sum_prints(tmp_path: Path) -> None:
    folder = tiny_folder.write(tmp_path / "model", shards=2)
    names = sorted(p.name for p in folder.glob("*.safetensors"))
    command = ["sha256sum", "config.json", *names]
    lines = subprocess.run(command, check=True, cwd=folder, capture_output=True).stdout
    digest = open_folder(folder).sha256
    assert digest == hashlib.sha256(lines).digest()
    config = folder / "config.json"
    config.write_text(config.read_text().replace(": ", ":  ", 1))  # the same JSON, another file
    assert open_folder(folder).sha256 != digest
    tiny_folder.write(folder, shards=2)
    assert open_folder(folder).sha256 == digest
    flip_at(folder / names[1], -1)
    assert open_folder(folder).sha256 != digest


def test_the_digest_names_the_files_in_their_order(tmp_path: Path) -> None:
    folder = tiny_folder.write(tmp_path / "model")
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    placed = dict.fromkeys(_names_in(data), "a.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": placed}))
    command = ["sha256sum", "a.safetensors", "config.json"]
    lines = subprocess.run(command, check=True, cwd=folder, capture_output=True).stdout
    assert open_folder(folder).sha256 == hashlib.sha256(lines).digest()


def _names_in(data: bytes) -> list[str]:
    """Return the names of the tensors in a safetensors file."""
    size = int.from_bytes(data[:8], "little")
    return [name for name in json.loads(data[8 : 8 + size]) if name != "__metadata__"]


def test_q4_is_refused_for_a_folder(tmp_path: Path) -> None:
    folder = tiny_folder.write(tmp_path / "model")
    with pytest.raises(NumericsUnsupported, match="Q4_0"):
        load_random(folder, "q4")


def test_a_head_is_used_even_where_the_configuration_calls_it_tied(tmp_path: Path) -> None:
    folder = tiny_folder.write(tmp_path / "model", changed={"tie_word_embeddings": True})
    assert not open_folder(folder).config.tied


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
def test_rope_is_scaled_as_the_folder_says(tmp_path: Path, place: str) -> None:
    options = LLAMA3 | ({"rope_theta": 500.0} if place == "rope_parameters" else {})
    folder = tiny_folder.write(tmp_path / "model", changed={place: options})
    engine = load_random(folder, "fp32")
    assert engine.config.rope_base == (500.0 if place == "rope_parameters" else 10_000.0)
    assert engine.config.rope_divisors[0] == 1.0
    assert engine.config.rope_divisors[-1] == 8.0
    naive = tiny_model.naive_logits(engine.file, IDS)
    assert np.abs(_run(engine, 50) - naive).max() < 1e-3


WINDOWS: list[tuple[str, dict[str, Any], int]] = [
    ("mistral", {"sliding_window": 100}, 100),
    ("mistral", {"sliding_window": None}, 1024),
    ("mistral", {"sliding_window": 4096}, 1024),
    ("qwen2", {"sliding_window": 100, "use_sliding_window": False}, 1024),
    ("qwen2", {"sliding_window": 100}, 1024),
    ("qwen2", {"sliding_window": 100, "use_sliding_window": True}, 100),
    ("qwen2", {"sliding_window": 100, "layer_types": ["full_attention"] * 2}, 1024),
    ("qwen2", {"sliding_window": 100, "layer_types": ["sliding_attention"] * 2}, 100),
]


@pytest.mark.parametrize(("family", "changed", "context"), WINDOWS)
def test_a_context_longer_than_the_attention_window_is_not_offered(
    tmp_path: Path, family: str, changed: dict[str, Any], context: int
) -> None:
    config = replace(LLAMA, qkv_bias=family == "qwen2")
    folder = tiny_folder.write(tmp_path / "model", config, family=family, changed=changed)
    assert open_folder(folder).config.context_tokens == context


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another family": ({"model_type": "gemma3"}, "gemma3"),
    "no family": ({"model_type": None}, "None"),
    "another activation": ({"hidden_act": "gelu"}, "gelu"),
    "quantised weights": ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
    "yarn": ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "yarn"),
    "partial rotation": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    "rope by layer": ({"rope_parameters": {"full_attention": {}}}, "RoPE"),
    "chunked attention": ({"layer_types": ["chunked_attention"] * 2}, "chunked_attention"),
    "odd heads": ({"num_key_value_heads": 3}, "over 3"),
}


@pytest.mark.parametrize(("changed", "named"), REFUSED.values(), ids=REFUSED)
def test_an_option_that_the_engine_lacks_is_refused_by_name(
    tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    folder = tiny_folder.write(tmp_path / "model", changed=changed)
    with pytest.raises(ModelArchitectureUnknown, match=named):
        open_folder(folder)


INVALID: dict[str, dict[str, Any]] = {
    "no width": {"hidden_size": None},
    "half a layer": {"num_hidden_layers": 1.5},
    "no layers": {"num_hidden_layers": 0},
    "a width in words": {"hidden_size": "64"},
    "a base of zero": {"rope_theta": 0},
    "a base beyond all doubles": {"rope_theta": 10**400},
    "an epsilon beyond all doubles": {"rms_norm_eps": 10**400},
    "layer types in words": {"layer_types": "full_attention"},
}


@pytest.mark.parametrize("changed", INVALID.values(), ids=INVALID)
def test_a_configuration_that_is_not_sound_is_refused(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    folder = tiny_folder.write(tmp_path / "model", changed=changed)
    with pytest.raises(ModelFileInvalid, match=str(next(iter(changed)))) as caught:
        open_folder(folder)
    assert str(folder / "config.json") in caught.value.detail


def test_a_scaling_without_its_factor_is_refused(tmp_path: Path) -> None:
    folder = tiny_folder.write(tmp_path / "model", changed={"rope_scaling": {"type": "linear"}})
    with pytest.raises(ModelFileInvalid, match="factor"):
        open_folder(folder)


def test_tensors_are_refused_under_the_names_of_the_folder(tmp_path: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    folder = tiny_folder.write(tmp_path / "less", left_out=name)
    with pytest.raises(ModelTensorMissing, match=r"layers\.1\.mlp\.up_proj\.weight is missing"):
        open_folder(folder)
    folder = tiny_folder.write(tmp_path / "wrong", extra={name: torch.zeros(8, 64)})
    with pytest.raises(ModelTensorMissing, match=r"layers\.1\.mlp\.up_proj\.weight has shape"):
        open_folder(folder)
    folder = tiny_folder.write(tmp_path / "headless", left_out="lm_head.weight")
    with pytest.raises(ModelTensorMissing, match=r"lm_head\.weight is missing"):
        open_folder(folder)
    bias = {"model.layers.0.self_attn.o_proj.bias": torch.zeros(64)}
    folder = tiny_folder.write(tmp_path / "more", extra=bias)
    with pytest.raises(ModelArchitectureUnknown, match=r"self_attn\.o_proj\.bias"):
        open_folder(folder)
    odd = {"model.layers.0.mlp.router.weight": torch.zeros(8, 64)}
    folder = tiny_folder.write(tmp_path / "experts", extra=odd)
    with pytest.raises(ModelArchitectureUnknown, match=r"mlp\.router"):
        open_folder(folder)
    whole = {name: torch.zeros((96, 64), dtype=torch.int8)}
    folder = tiny_folder.write(tmp_path / "integers", extra=whole)
    with pytest.raises(ModelArchitectureUnknown, match="I8"):
        open_folder(folder)
    computed = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)}
    open_folder(tiny_folder.write(tmp_path / "computed", extra=computed))


LINEAR = {"type": "linear", "factor": 2.0}
COUNTS: dict[str, tuple[dict[str, Any], str]] = {
    "layers": ({"num_hidden_layers": 2**70}, r"layers\.2\..* is missing"),
    "heads": ({"num_attention_heads": 2**70, "head_dim": 2}, r"layers\.0\.self_attn\.q_proj"),
    "head width": ({"head_dim": 2**60, "rope_scaling": LINEAR}, r"layers\.0\.self_attn\.q_proj"),
    "head width of llama3": ({"head_dim": 2**60, "rope_scaling": LLAMA3}, r"layers\.0\."),
    "width": ({"hidden_size": 2**70}, r"embed_tokens\.weight has shape"),
    "inner width": ({"intermediate_size": 2**70}, r"layers\.0\.mlp\.gate_proj\.weight has shape"),
}


@pytest.mark.parametrize(("changed", "named"), COUNTS.values(), ids=COUNTS)
def test_a_count_unlike_the_tensors_is_refused_before_it_sizes_anything(
    tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    folder = tiny_folder.write(tmp_path / "model", changed=changed)
    with pytest.raises(ModelTensorMissing, match=named):
        open_folder(folder)


def test_a_folder_without_one_of_its_files_is_refused_by_its_name(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        folder = tiny_folder.write(tmp_path / name)
        (folder / name).unlink()
        with pytest.raises(ModelFileMissing, match=name):
            open_folder(folder)
    folder = tiny_folder.write(tmp_path / "shards", shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelFileMissing, match="00002-of-00002"):
        open_folder(folder)


def test_damaged_files_are_refused_and_never_crash(tmp_path: Path) -> None:
    folder = tiny_folder.write(tmp_path / "model", shards=2)
    for path in sorted(folder.iterdir()):
        if path.name == "tokenizer_config.json":
            continue
        whole = path.read_bytes()
        for damaged in (b"", b"\xff" * 9, b"[" * 100_000, b"[]", b"{}", whole[: len(whole) // 2]):
            path.write_bytes(damaged)
            with pytest.raises(ModelFileError):
                open_folder(folder)
        path.write_bytes(whole)
    open_folder(folder)


def test_tensors_of_files_that_are_cut_or_gone_meanwhile_are_refused(tmp_path: Path) -> None:
    """DECISIONS D739: a mapped file that is cut would end the process."""
    tensors = open_folder(tiny_folder.write(tmp_path / "model")).tensors
    weights = tmp_path / "model" / "model.safetensors"
    os.truncate(weights, 4_096)
    with pytest.raises(ModelFileTruncated, match=r"model\.norm\.weight"):
        tensors.read("output_norm.weight")
    weights.unlink()
    with pytest.raises(ModelFileMissing):
        tensors.read("output_norm.weight")


def test_an_index_names_files_of_its_folder_only(tmp_path: Path) -> None:
    folder = tiny_folder.write(tmp_path / "model", shards=2)
    index = folder / "model.safetensors.index.json"
    placed = json.loads(index.read_text())["weight_map"]
    outside = tmp_path / "outside.safetensors"
    outside.write_bytes((folder / "model-00001-of-00002.safetensors").read_bytes())
    (folder / "model-00001-of-00002.safetensors").unlink()
    for name in ("../outside.safetensors", str(outside), "outside\0.safetensors"):
        moved = {k: name if v.startswith("model-00001") else v for k, v in placed.items()}
        index.write_text(json.dumps({"weight_map": moved}))
        with pytest.raises(ModelFileInvalid, match="outside"):
            open_folder(folder)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    folder = tiny_folder.write(tmp_path / "model", shards=2)
    copy = folder / "model-00003-of-00003.safetensors"
    copy.write_bytes((folder / "model-00001-of-00002.safetensors").read_bytes())
    index = folder / "model.safetensors.index.json"
    placed = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": placed | {"copy": copy.name}}))
    with pytest.raises(ModelFileInvalid, match="two files"):
        open_folder(folder)
