"""Converted weights are cached by content, and a broken cache is never used."""

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from model_host.engine import gguf_file, hf_folder, open_model, weights
from model_host.engine.gguf_file import open_model_file
from model_host.engine.weights import load_weights, soonest_numerics, unpermute
from model_host.engine.weights_cache import WeightsCache
from model_host.errors import ModelFileChanged
from tests.model_host.engine import tiny_folder, tiny_model
from tests.model_host.io.damage import flip_at

NORM = "output_norm.weight"


def _same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with layers in Q4_1."""

    def kind_of(name: str) -> Kind | None:
        return Kind.Q4_1 if name.startswith("blk.") and "norm" not in name else None

    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return tiny_model.write(path, kind_of=kind_of)


@pytest.mark.parametrize("numerics", ["q4", "bf16", "fp32"])
def test_the_cache_gives_back_the_same_bits(tiny_path: Path, tmp_path: Path, numerics: str) -> None:
    file = open_model_file(tiny_path)
    built = load_weights(file, numerics, WeightsCache(tmp_path))
    cached = load_weights(file, numerics, WeightsCache(tmp_path))
    assert (built.from_cache, cached.from_cache) == (False, True)
    assert _same(built.tensors, cached.tensors)
    assert _same(built.tensors, load_weights(file, numerics, None).tensors)


def test_number_formats_do_not_share_a_cache_file(tiny_path: Path, tmp_path: Path) -> None:
    file = open_model_file(tiny_path)
    for numerics in ("bf16", "fp32", "q4"):
        assert not load_weights(file, numerics, WeightsCache(tmp_path)).from_cache


def test_the_cache_of_four_bits_holds_the_numbers_of_the_file(
    tiny_path: Path, tmp_path: Path
) -> None:
    file = open_model_file(tiny_path)
    load_weights(file, "q4", WeightsCache(tmp_path))
    cached = load_weights(file, "q4", WeightsCache(tmp_path)).tensors
    down = file.tensors.read_four_bits("blk.0.ffn_down.weight")
    # Not the packed bytes, which differ from one kind of CPU to another.
    assert np.array_equal(cached["0.down.nibbles"].numpy(), down.nibbles)
    scales = torch.from_numpy(down.scales.T).bfloat16()
    assert torch.equal(cached["0.down.scales"][..., 0], scales)


@pytest.mark.parametrize("where", [0, 10, 20, 60, 500, -1])
def test_a_flipped_byte_in_the_cache_means_a_rebuild(
    tiny_path: Path, tmp_path: Path, where: int, caplog: pytest.LogCaptureFixture
) -> None:
    file = open_model_file(tiny_path)
    built = load_weights(file, "bf16", WeightsCache(tmp_path))
    (path,) = (tmp_path / "weights").iterdir()
    flip_at(path, where)
    with caplog.at_level(logging.WARNING):
        rebuilt = load_weights(file, "bf16", WeightsCache(tmp_path))
    assert not rebuilt.from_cache
    assert "weights cache rebuilt" in caplog.text
    assert _same(built.tensors, rebuilt.tensors)
    assert load_weights(file, "bf16", WeightsCache(tmp_path)).from_cache


def test_a_truncated_cache_means_a_rebuild(tiny_path: Path, tmp_path: Path) -> None:
    file = open_model_file(tiny_path)
    load_weights(file, "bf16", WeightsCache(tmp_path))
    (path,) = (tmp_path / "weights").iterdir()
    for size in (0, 5, 47, 60, path.stat().st_size - 1):
        path.write_bytes(path.read_bytes()[:size])
        assert not load_weights(file, "bf16", WeightsCache(tmp_path)).from_cache


def test_a_cache_folder_that_cannot_be_written_is_not_used(
    tiny_path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    assert not load_weights(open_model_file(tiny_path), "bf16", WeightsCache(blocked)).from_cache
    assert "weights cache not written" in caplog.text


def test_unpermuting_turns_pairs_into_halves() -> None:
    rows = np.arange(8, dtype=np.float32)[:, None]  # two heads of four rows
    assert unpermute(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert unpermute(rows[:, 0], 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    groups = np.arange(48).reshape(8, 3, 2)
    assert np.array_equal(unpermute(groups, 2), groups[[0, 2, 1, 3, 4, 6, 5, 7]])


def test_the_soonest_numerics_are_those_of_the_model_and_the_machine(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_bits = open_model_file(tiny_path)
    plain = open_model_file(tiny_model.write(tmp_path / "plain.gguf", kind_of=lambda _: None))
    for int4, half, packed_bf16, of_four_bits, of_plain in (
        (True, False, True, "q4", "bf16"), (False, False, True, "bf16", "bf16"),
        (True, True, False, "q4", "bf16"), (True, False, False, "q4", "fp32"),
        (False, False, False, "fp32", "fp32"),
    ):  # fmt: skip
        monkeypatch.setattr(weights, "int4_available", lambda can=int4: can)
        monkeypatch.setattr(weights, "half_available", lambda can=half: can)
        monkeypatch.setattr(weights, "packed_available", lambda _dtype, can=packed_bf16: can)
        assert soonest_numerics(four_bits) == of_four_bits
        assert soonest_numerics(plain) == of_plain


@pytest.mark.parametrize("name", ["model.gguf", "model.safetensors"])
def test_weights_of_a_file_replaced_since_its_digest_are_neither_used_nor_kept(
    tmp_path: Path, name: str
) -> None:
    """They would go by the profile of the old ones, also at each later start (DECISIONS D629)."""
    folder, width = tmp_path / "model", tiny_model.LLAMA.width
    if name == "model.gguf":
        model = folder / name
        folder.mkdir()
        tiny_model.write(model)
        other = tiny_model.write(tmp_path / "other", extra={NORM: np.full(width, 2, np.float32)})
    else:
        model = tiny_folder.write(folder)
        made = tiny_folder.write(tmp_path / "other", extra={"model.norm.weight": torch.ones(width)})
        other = made / name
    file = open_model(model)
    other.replace(folder / name)
    for cache in (WeightsCache(tmp_path), None):
        with pytest.raises(ModelFileChanged, match=name):
            load_weights(file, "fp32", cache)
    assert not list(tmp_path.rglob("*.weights"))
    assert not load_weights(open_model(model), "fp32", WeightsCache(tmp_path)).from_cache


def test_a_file_written_while_it_is_opened_is_refused(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its header would be of the old bytes, and its digest of the new ones."""
    path = tmp_path / "model.gguf"
    shutil.copy(tiny_path, path)
    read_header = gguf_file.read_header

    def written_meanwhile(opened: Path) -> Any:
        header = read_header(opened)
        flip_at(opened, -1)
        return header

    monkeypatch.setattr(gguf_file, "read_header", written_meanwhile)
    with pytest.raises(ModelFileChanged):
        open_model(path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_written_while_it_is_opened_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tiny_folder.write(tmp_path / "model")
    open_model(folder)
    read_config = hf_folder.read_config

    def written_meanwhile(*given: Any) -> Any:
        config = read_config(*given)
        (folder / name).write_bytes((folder / name).read_bytes())
        return config

    monkeypatch.setattr(hf_folder, "read_config", written_meanwhile)
    with pytest.raises(ModelFileChanged, match=name):
        open_model(folder)
