"""Hugging Face folders: config.json, safetensors, tokenizer.json (spec/07-host §7).

Weights that are pickled are never read.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from model_host.engine.file_digest import file_sha256, file_state
from model_host.engine.four_bits import FourBits
from model_host.engine.generation_config import from_folder
from model_host.engine.hf_config import read_config, with_rope_scaling
from model_host.engine.hf_tokenizer import read_template, read_tokenizer
from model_host.engine.json_file import read_json
from model_host.engine.model_file import (
    ModelFile,
    check_config,
    check_tensors,
    name_from,
    naming,
    read_part,
)
from model_host.engine.regular_file import open_regular
from model_host.errors import ModelArchitectureUnknown, ModelFileInvalid, ModelFileMissing

CONFIG = "config.json"
_GENERATION = "generation_config.json"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_STORED = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""The formats that are read, and their bytes as numpy has them."""
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_IN_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
_PARTS = {value: key for key, value in _LAYER.items()}
_GGUF_LAYER = re.compile(r"blk\.(\d+)\.(.+)\.(weight|bias)")
_METADATA = "__metadata__"
_COMPUTED = ".rotary_emb.inv_freq"
"""Ends the names of buffers that old files hold and that follow from the configuration."""


def _gguf_name(name: str) -> str:
    """Return the GGUF name of a tensor; an unknown one keeps its own."""
    if match := _IN_LAYER.fullmatch(name):
        layer, part, kind = match.groups()
        return f"blk.{layer}.{_LAYER[part]}.{kind}" if part in _LAYER else name
    return _TOP.get(name, name)


def _own_name(name: str) -> str:
    """Return the folder's name of a tensor; the inverse of `_gguf_name`."""
    if match := _GGUF_LAYER.fullmatch(name):
        layer, part, kind = match.groups()
        return f"model.layers.{layer}.{_PARTS[part]}.{kind}"
    return {value: key for key, value in _TOP.items()}.get(name, name)


@dataclass(frozen=True, slots=True)
class _Part:
    """A tensor of a safetensors file; its place in the file."""

    path: Path
    own_name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class FolderTensors:
    """The tensors of a folder's safetensors files, a `TensorSource`."""

    parts: dict[str, _Part]
    """By GGUF name."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor, outermost dimension first."""
        return {name: part.shape for name, part in self.parts.items()}

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """Read a tensor as float32. Raises ModelFileMissing or ModelFileTruncated."""
        part = self.parts[name]
        data = read_part(part.path, part.offset, part.nbytes, part.own_name)
        if part.dtype == "BF16":  # the upper half of a float32
            values = (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = data.view(_STORED[part.dtype]).astype(np.float32, copy=False)
        return values.reshape(part.shape)

    def is_four_bits(self, name: str) -> bool:  # noqa: ARG002  # the interface's
        """Return False: such folders hold whole numbers of bytes."""
        return False

    def read_four_bits(self, name: str) -> FourBits:
        """Raise AssertionError: there is no such matrix."""
        raise AssertionError(name)


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the entries of a safetensors file, and where its data begin.

    Raises ModelFileMissing or ModelFileInvalid.
    """
    try:
        with open_regular(path) as file:
            # The package checks the header, and that the file is whole. It maps it meanwhile.
            with safe_open(path, framework="numpy"):
                pass
            size = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(size))
    except (SafetensorError, ValueError) as error:
        raise ModelFileInvalid(f"{path} isn't a whole safetensors file: {error}") from error
    except OSError as error:
        reason = error.strerror or error
        raise ModelFileMissing(f"{path} can't be read: {reason}.") from error
    return header, 8 + size


def _files(folder: Path) -> list[Path]:
    """Return the folder's safetensors files. Raises ModelFileMissing or ModelFileInvalid."""
    if (folder / _WEIGHTS).exists():
        return [folder / _WEIGHTS]
    if not (folder / _INDEX).exists():
        raise ModelFileMissing(f"{folder} has neither {_WEIGHTS} nor {_INDEX}.")
    placed = read_json(folder / _INDEX).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise ModelFileInvalid(f"{_INDEX} has no weight_map.")
    names = sorted({str(name) for name in placed.values()})
    for name in names:
        if Path(name).name != name or "\0" in name:
            raise ModelFileInvalid(f"{_INDEX} names {name!r}, which isn't a file of the folder.")
    return [folder / name for name in names]


def _tensors(files: list[Path]) -> FolderTensors:
    """Read the headers of the files. Raises a subclass of ModelFileError."""
    parts: dict[str, _Part] = {}
    for path in files:
        header, start = _header(path)
        for own_name, entry in header.items():
            if own_name == _METADATA or own_name.endswith(_COMPUTED):
                continue
            dtype = entry["dtype"]
            if dtype not in _STORED:
                raise ModelArchitectureUnknown(f"{own_name} is stored as {dtype}.")
            name = _gguf_name(own_name)
            if name in parts:
                raise ModelFileInvalid(f"{own_name} is in two files.")
            begin, end = entry["data_offsets"]
            shape = tuple(entry["shape"])
            parts[name] = _Part(path, own_name, shape, dtype, start + begin, end - begin)
    return FolderTensors(parts)


def folder_sha256(files: list[Path]) -> bytes:
    """Return the digest of the files: SHA-256 of the lines that `sha256sum` prints for them."""
    lines = (f"{file_sha256(path).hex()}  {path.name}\n" for path in sorted(files))
    return hashlib.sha256("".join(lines).encode()).digest()


def _generation(folder: Path) -> dict[str, Any]:
    """Read generation_config.json, if there is one. Raises ModelFileInvalid."""
    path = folder / _GENERATION
    return read_json(path) if path.exists() else {}


def open_folder(folder: Path) -> ModelFile:
    """Open a Hugging Face folder and check all of it.

    Raises a subclass of ModelFileError, or TokenizerUnknown.
    """
    with naming(folder):
        return _open_folder(folder)


def _open_folder(folder: Path) -> ModelFile:
    states = {folder / CONFIG: file_state(folder / CONFIG)}
    fields = read_json(folder / CONFIG)
    files = _files(folder)
    states |= {path: file_state(path) for path in files}
    tensors = _tensors(files)
    with naming(folder / CONFIG):
        config = read_config(fields, tensors.shapes)
        check_config(config)
    check_tensors(config, tensors.shapes, own_name=_own_name)
    with naming(folder / CONFIG):
        config = with_rope_scaling(config, fields)
    return ModelFile(
        path=folder,
        sha256=folder_sha256([*states]),
        name=name_from(folder.resolve().name),
        config=config,
        tokenizer=read_tokenizer(folder, fields, config.vocab),
        template=read_template(folder),
        interleaved=False,
        tensors=tensors,
        states=states,
        sampling=from_folder(_generation(folder)),
    )
