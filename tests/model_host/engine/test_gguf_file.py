"""A model file is checked as a whole before it is used."""

import os
import random
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from model_host.engine import gguf_header
from model_host.engine.gguf_file import open_model_file
from model_host.engine.gguf_header import read_header
from model_host.engine.model_file import ModelFile
from model_host.engine.tokenizer import Tokenizer
from model_host.errors import (
    ModelArchitectureUnknown,
    ModelFileError,
    ModelFileInvalid,
    ModelFileMissing,
    ModelFileTruncated,
    ModelTensorMissing,
    TokenizerUnknown,
)
from tests.model_host.engine import tiny_model


def test_the_header_parser_agrees_with_the_gguf_package(tiny_path: Path) -> None:
    fields, entries = read_header(tiny_path)
    reader = gguf.GGUFReader(tiny_path)
    theirs = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()} == theirs
    assert {
        t.name: (tuple(map(int, t.shape))[::-1], t.tensor_type, t.data_offset, t.n_bytes)
        for t in reader.tensors
    } == {n: (e.shape, e.type, e.offset, e.nbytes) for n, e in entries.items()}


def test_tensors_come_out_as_they_went_in(tiny_path: Path) -> None:
    file = open_model_file(tiny_path)
    for name, value in tiny_model.tensors().items():
        assert np.array_equal(file.tensors.read(name), value)


def test_quantised_tensors_come_out_as_the_gguf_package_has_them(model_file: ModelFile) -> None:
    """The smallest of each type; the package needs seconds to read the header of this file."""
    _, entries = read_header(model_file.path)
    data = np.memmap(model_file.path, np.uint8)
    by_size = sorted(entries.items(), key=lambda one: -one[1].nbytes)
    kinds = {entry.type: (name, entry) for name, entry in by_size}
    assert Kind.Q4_1 in kinds
    for kind, (name, entry) in kinds.items():
        stored = data[entry.offset : entry.offset + entry.nbytes]
        theirs = gguf.quants.dequantize(stored.reshape(entry.shape[0], -1), kind)
        assert np.array_equal(model_file.tensors.read(name), theirs.reshape(entry.shape))


def test_the_real_model_has_its_name_and_shape(model_file: ModelFile) -> None:
    config = model_file.config
    assert (config.layers, config.width, config.ffn_width, config.vocab) == (30, 576, 1536, 49152)
    assert (config.heads, config.kv_heads, config.head_width, config.tied) == (9, 3, 64, True)
    assert (config.rope_base, config.context_tokens) == (100_000.0, 8192)
    assert model_file.sha256.hex().startswith("b179c9523d0e6a0f98a330c7562b6827")
    assert "<|im_start|>" in model_file.template


def test_a_file_cut_anywhere_is_refused_as_truncated(tiny_path: Path, tmp_path: Path) -> None:
    data = tiny_path.read_bytes()
    cut = tmp_path / "cut.gguf"
    # At least a whole padding block from the end: the bytes after it belong to no tensor.
    for size in [4, 7, 12, 30, 500, 5_000, len(data) // 2, len(data) - 40]:
        cut.write_bytes(data[:size])
        with pytest.raises(ModelFileTruncated):
            open_model_file(cut)


def test_a_file_cut_while_its_header_is_read_is_refused_and_ends_no_process(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DECISIONS D739: as `cp` cuts the file that it replaces, under a host that loads it."""
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_path.read_bytes())

    class Cutting(tuple[int, ...]):
        __slots__ = ()

        def __contains__(self, version: object) -> bool:
            os.truncate(cut, 0)
            return super().__contains__(version)

    monkeypatch.setattr(gguf_header, "VERSIONS", Cutting(gguf_header.VERSIONS))
    with pytest.raises(ModelFileTruncated):
        read_header(cut)


def test_tensors_of_a_file_that_is_gone_meanwhile_are_refused(
    tiny_path: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "gone.gguf"
    gone.write_bytes(tiny_path.read_bytes())
    tensors = open_model_file(gone).tensors
    gone.unlink()
    with pytest.raises(ModelFileMissing):
        tensors.read("output_norm.weight")


def test_a_damaged_header_is_refused_and_never_crashes(tiny_path: Path, tmp_path: Path) -> None:
    data, rng = tiny_path.read_bytes(), random.Random(7)
    broken = tmp_path / "broken.gguf"
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(3):
            damaged[rng.randrange(4, 2_000)] = rng.randrange(256)
        broken.write_bytes(damaged)
        try:
            open_model_file(broken)
        except ModelFileError:
            refused += 1
    assert refused > 50


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    for name, data in {"text": b"PK\x03\x04 not a model", "empty": b""}.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(ModelFileInvalid):
            open_model_file(path)
    with pytest.raises(ModelFileMissing):
        open_model_file(tmp_path / "absent.gguf")
    with pytest.raises(ModelFileMissing):
        open_model_file(tmp_path)


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    path = tiny_model.write(tmp_path / "other.gguf", architecture="mamba")
    with pytest.raises(ModelArchitectureUnknown) as caught:
        open_model_file(path)
    assert "mamba" in caught.value.detail
    assert caught.value.next_step
    assert not caught.value.retryable


def test_a_missing_or_misshapen_tensor_is_refused_by_name(tmp_path: Path) -> None:
    path = tiny_model.write(tmp_path / "less.gguf", left_out="blk.1.ffn_up.weight")
    with pytest.raises(ModelTensorMissing, match=r"blk\.1\.ffn_up"):
        open_model_file(path)
    wrong = {"blk.0.attn_q.weight": np.zeros((8, 64), np.float32)}
    path = tiny_model.write(tmp_path / "wrong.gguf", extra=wrong)
    with pytest.raises(ModelTensorMissing, match=r"blk\.0\.attn_q"):
        open_model_file(path)


def test_a_count_unlike_the_tensors_is_refused_before_it_sizes_anything(tmp_path: Path) -> None:
    path = tiny_model.write(tmp_path / "layers.gguf", options={"block_count": 2**32 - 1})
    with pytest.raises(ModelTensorMissing, match=r"blk\.2\..* is missing"):
        open_model_file(path)
    wide = {"attention.key_length": 2**32 - 2, "attention.value_length": 2**32 - 2}
    scaled = {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}
    path = tiny_model.write(tmp_path / "heads.gguf", options={**wide, **scaled})
    with pytest.raises(ModelTensorMissing, match=r"blk\.0\.attn_q"):
        open_model_file(path)


def test_a_tensor_the_engine_would_ignore_is_refused(tmp_path: Path) -> None:
    bias = {"blk.0.attn_output.bias": np.zeros(64, np.float32)}
    path = tiny_model.write(tmp_path / "more.gguf", extra=bias)
    with pytest.raises(ModelArchitectureUnknown, match="bias"):
        open_model_file(path)


def test_an_end_token_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    for eos_id in (len(tiny_model.TOKENS), 2**32 - 1):
        path = tiny_model.write(tmp_path / "eos.gguf", eos_id=eos_id)
        with pytest.raises(ModelFileInvalid, match="eos_token_id"):
            open_model_file(path)
    path = tiny_model.write(tmp_path / "eos.gguf", eos_id=1)
    assert open_model_file(path).tokenizer.eos_id == 1


def test_the_ends_of_a_turn_and_of_a_message_are_listed_beside_the_end_token(
    tmp_path: Path,
) -> None:
    def add_text(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(list(tiny_model.TOKENS))
        writer.add_eos_token_id(1)
        writer.add_eot_token_id(1)
        writer.add_eom_token_id(0)

    path = tiny_model.write(tmp_path / "ends.gguf", add_text=add_text)
    tokenizer = open_model_file(path).tokenizer
    assert (tokenizer.eos_id, tokenizer.end_ids) == (1, (0,))


@pytest.mark.parametrize(
    ("key", "value"), [("tokens", 7), ("tokens", "text"), ("token_type", 7), ("merges", 7)]
)
def test_a_tokenizer_of_other_types_is_refused_by_file_and_field(
    tmp_path: Path, key: str, value: int | str
) -> None:
    path = tmp_path / "types.gguf"
    path.write_bytes(_with_field(tiny_model.write(path).read_bytes(), key, value))
    with pytest.raises(ModelFileInvalid, match=rf"tokenizer\.ggml\.{key}") as caught:
        open_model_file(path)
    assert str(path) in caught.value.detail


def _with_field(data: bytes, key: str, value: int | str) -> bytes:
    """Return a file with one more field, the last of its name, and tensors of other numbers."""
    name = f"tokenizer.ggml.{key}".encode()
    stored = struct.pack("<II", 4, value) if isinstance(value, int) else _text_field(value)
    (count,) = struct.unpack_from("<Q", data, 16)
    end = len(data) - len(data.split(b"token_embd.weight")[-1]) - len(b"token_embd.weight") - 8
    field = struct.pack("<Q", len(name)) + name + stored
    return data[:16] + struct.pack("<Q", count + 1) + data[24:end] + field + data[end:] + bytes(64)


def _text_field(value: str) -> bytes:
    return struct.pack("<IQ", 8, len(value)) + value.encode()


def test_an_unknown_tokenizer_is_refused(tmp_path: Path) -> None:
    file = open_model_file(tiny_model.write(tmp_path / "pre.gguf", pre="klingon"))
    with pytest.raises(TokenizerUnknown, match="klingon"):
        Tokenizer.build(file.tokenizer)
