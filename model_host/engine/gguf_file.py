"""GGUF model files: configuration, tokenizer data, template, tensors (spec/07-host).

The bounded parser below reads the header. It reports truncation as such, and takes 0.1 s
for a vocabulary of 49,152, where the reader of the gguf package takes 2 s. The package
provides the layout and the dequantisation of tensors. No torch here.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from model_host.engine.file_digest import file_sha256
from model_host.errors import (
    ModelArchitectureUnknown,
    ModelFileInvalid,
    ModelFileMissing,
    ModelFileTruncated,
    ModelTensorMissing,
)
from model_host.model_config import ModelConfig

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# A header names a few hundred tensors and at most some 300,000 tokens and merges.
ITEMS_MAX = 1 << 22
STRING_BYTES_MAX = 1 << 24
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q"}
_SCALARS |= {11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class TokenizerData:
    """The tokenizer as the file states it; ids are indexes into `tokens`.

    The flag to add a BOS token is left out: control tokens come from the template alone.
    `types` are llama.cpp's: 1 normal, 3 control, 4 user defined, 5 unused, 6 byte.
    """

    model: str
    pre: str
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[str, ...]
    bos_id: int | None
    eos_id: int | None


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Type and location of one tensor; `shape` is outermost first, as in numpy."""

    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF file whose header passed every check and whose tensors all lie inside the file."""

    path: Path
    sha256: bytes
    name: str
    config: ModelConfig
    tokenizer: TokenizerData
    template: str
    entries: dict[str, TensorEntry]

    def tensors(self, names: list[str]) -> dict[str, npt.NDArray[np.float32]]:
        """Dequantise the named tensors to float32.

        Raises ModelArchitectureUnknown for a quantisation the gguf package can't undo.
        """
        found = {}
        with self.path.open("rb") as file:
            for name in names:
                entry = self.entries[name]
                file.seek(entry.offset)
                data = file.read(entry.nbytes)
                if len(data) != entry.nbytes:
                    raise ModelFileTruncated(f"{self.path} ends inside {name}.")
                found[name] = _dequantize(np.frombuffer(data, np.uint8), entry, name)
        return found


def _dequantize(
    data: npt.NDArray[np.uint8], entry: TensorEntry, name: str
) -> npt.NDArray[np.float32]:
    """Dequantise one tensor to float32."""
    if entry.type is GGMLQuantizationType.F32:
        return data.view("<f4").reshape(entry.shape)
    if entry.type is GGMLQuantizationType.F16:
        return data.view("<f2").astype(np.float32).reshape(entry.shape)
    rows = data.reshape(*entry.shape[:-1], -1)
    try:
        return np.asarray(dequantize(rows, entry.type), np.float32).reshape(entry.shape)
    except NotImplementedError as error:
        raise ModelArchitectureUnknown(f"{name} is quantised as {entry.type.name}.") from error


class _Header:
    """A cursor over the header that never reads past the end of the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def scalar(self, layout: str) -> Any:
        """Read one little-endian scalar."""
        size = struct.calcsize(layout)
        if self.at + size > len(self.data):
            raise ModelFileTruncated("The file ends inside its header.")
        (value,) = struct.unpack_from(layout, self.data, self.at)
        self.at += size
        return value

    def count(self, bound: int) -> int:
        """Read a length. Raises ModelFileInvalid above `bound`."""
        value = int(self.scalar("<Q"))
        if value > bound:
            raise ModelFileInvalid(f"The header states {value} items, more than {bound}.")
        return value

    def text(self) -> str:
        """Read a string. Raises ModelFileInvalid if it isn't UTF-8."""
        size = self.count(STRING_BYTES_MAX)
        if self.at + size > len(self.data):
            raise ModelFileTruncated("The file ends inside its header.")
        raw = self.data[self.at : self.at + size]
        self.at += size
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise ModelFileInvalid("The header holds a string that isn't UTF-8.") from error

    def value(self, kind: int, *, nested: bool = False) -> Any:
        """Read a value of the given kind. Raises ModelFileInvalid for an array of arrays."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY and not nested:
            item, count = int(self.scalar("<I")), self.count(ITEMS_MAX)
            return tuple(self.value(item, nested=True) for _ in range(count))
        layout = _SCALARS.get(kind)
        if layout is None:
            raise ModelFileInvalid(f"The header holds a value of the unknown kind {kind}.")
        return self.scalar(layout)


def _read_entries(header: _Header, count: int, alignment: int) -> dict[str, TensorEntry]:
    """Read the tensor table and check that each tensor lies inside the file."""
    entries: dict[str, TensorEntry] = {}
    for _ in range(count):
        name = header.text()
        dims = int(header.scalar("<I"))
        if dims > 4:
            raise ModelFileInvalid(f"{name} has {dims} dimensions.")
        shape = tuple(int(header.scalar("<Q")) for _ in range(dims))[::-1]
        kind, offset = int(header.scalar("<I")), int(header.scalar("<Q"))
        try:
            quant = GGMLQuantizationType(kind)
        except ValueError as error:
            raise ModelArchitectureUnknown(f"{name} has the unknown type {kind}.") from error
        block, block_bytes = GGML_QUANT_SIZES[quant]
        elements = 1
        for size in shape:
            elements *= size
        entries[name] = TensorEntry(shape, quant, offset, elements // block * block_bytes)
    start = -(-header.at // alignment) * alignment
    for name, entry in entries.items():
        entries[name] = TensorEntry(entry.shape, entry.type, start + entry.offset, entry.nbytes)
        if entries[name].offset + entry.nbytes > len(header.data):
            raise ModelFileTruncated(f"The file ends before or inside {name}.")
    return entries


def read_header(path: Path) -> tuple[dict[str, Any], dict[str, TensorEntry]]:
    """Read the metadata and the tensor table of a GGUF file.

    Raises ModelFileMissing, ModelFileInvalid, ModelFileTruncated or
    ModelArchitectureUnknown.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise ModelFileInvalid(f"{path} doesn't start with {MAGIC!r}.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read_mapped(_Header(data))
    except FileNotFoundError as error:
        raise ModelFileMissing(f"There is no file {path}.") from error
    except OSError as error:
        raise ModelFileMissing(f"{path} can't be read: {error.strerror}.") from error


def _read_mapped(header: _Header) -> tuple[dict[str, Any], dict[str, TensorEntry]]:
    """Read the file up to the tensor data."""
    header.at = 4
    version = int(header.scalar("<I"))
    if version not in VERSIONS:
        raise ModelFileInvalid(f"GGUF version {version} isn't one of {VERSIONS}.")
    tensors, pairs = header.count(ITEMS_MAX), header.count(ITEMS_MAX)
    fields: dict[str, Any] = {}
    for _ in range(pairs):
        key = header.text()
        fields[key] = header.value(int(header.scalar("<I")))
    alignment = fields.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ModelFileInvalid("general.alignment isn't a positive number.")
    return fields, _read_entries(header, tensors, alignment)


def _number(fields: dict[str, Any], key: str, default: float | None = None) -> Any:
    """Return a positive number from the metadata."""
    value = fields.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ModelFileInvalid(f"{key} is missing or isn't a positive number.")
    return value


def _config(fields: dict[str, Any], entries: dict[str, TensorEntry]) -> ModelConfig:
    """Read the configuration. Raises ModelArchitectureUnknown for options the engine lacks."""
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise ModelArchitectureUnknown(f"The engine runs llama, not {architecture!r}.")
    if fields.get("llama.expert_count", 0):
        raise ModelArchitectureUnknown("The engine doesn't run mixtures of experts.")
    if fields.get("llama.rope.scaling.type", "none") != "none":
        raise ModelArchitectureUnknown("The engine doesn't scale RoPE.")
    width = int(_number(fields, "llama.embedding_length"))
    heads = int(_number(fields, "llama.attention.head_count"))
    kv_heads = int(_number(fields, "llama.attention.head_count_kv", heads))
    head_width = int(_number(fields, "llama.attention.key_length", width // heads))
    rotated = int(_number(fields, "llama.rope.dimension_count", head_width))
    values = int(_number(fields, "llama.attention.value_length", head_width))
    if rotated != head_width or values != head_width or head_width % 2 or heads % kv_heads:
        raise ModelArchitectureUnknown(
            f"{heads} heads of {head_width} over {kv_heads}, {rotated} rotated, can't run."
        )
    embedding = entries.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelTensorMissing("token_embd.weight is missing or isn't a matrix.")
    return ModelConfig(
        layers=int(_number(fields, "llama.block_count")),
        width=width,
        ffn_width=int(_number(fields, "llama.feed_forward_length")),
        heads=heads,
        kv_heads=kv_heads,
        head_width=head_width,
        vocab=embedding.shape[0],
        context_tokens=int(_number(fields, "llama.context_length")),
        rope_base=float(_number(fields, "llama.rope.freq_base", 10_000.0)),
        rms_eps=float(_number(fields, "llama.attention.layer_norm_rms_epsilon")),
        tied="output.weight" not in entries,
    )


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the tensors of a model with this configuration."""
    c, q, kv = config, config.heads * config.head_width, config.kv_heads * config.head_width
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (c.vocab, c.width),
        "output_norm.weight": (c.width,),
    }
    if not c.tied:
        shapes["output.weight"] = (c.vocab, c.width)
    for layer in range(c.layers):
        for name, shape in {
            "attn_norm": (c.width,),
            "attn_q": (q, c.width),
            "attn_k": (kv, c.width),
            "attn_v": (kv, c.width),
            "attn_output": (c.width, q),
            "ffn_norm": (c.width,),
            "ffn_gate": (c.ffn_width, c.width),
            "ffn_up": (c.ffn_width, c.width),
            "ffn_down": (c.width, c.ffn_width),
        }.items():
            shapes[f"blk.{layer}.{name}.weight"] = shape
    return shapes


def _check_tensors(config: ModelConfig, entries: dict[str, TensorEntry]) -> None:
    """Raise ModelTensorMissing or ModelArchitectureUnknown for tensors unlike the expected."""
    expected = expected_shapes(config)
    for name, shape in expected.items():
        if name not in entries:
            raise ModelTensorMissing(f"{name} is missing.")
        if entries[name].shape != shape:
            raise ModelTensorMissing(f"{name} has shape {entries[name].shape}, not {shape}.")
    if unknown := sorted(entries.keys() - expected.keys()):
        # A bias or RoPE factor that is ignored would give wrong answers without an error.
        raise ModelArchitectureUnknown(f"The engine doesn't know the tensor {unknown[0]}.")


def _tokenizer(fields: dict[str, Any], vocab: int) -> TokenizerData:
    """Read the tokenizer fields; model_host/engine/tokenizer.py checks that it can rebuild it."""
    tokens = fields.get("tokenizer.ggml.tokens", ())
    types = fields.get("tokenizer.ggml.token_type") or (1,) * len(tokens)
    merges = fields.get("tokenizer.ggml.merges", ())
    if len(tokens) != vocab or len(types) != vocab:
        raise ModelFileInvalid(f"{len(tokens)} tokens and {len(types)} types for {vocab} rows.")
    if not all(isinstance(text, str) for text in (*tokens, *merges)):
        raise ModelFileInvalid("The tokenizer holds a token or merge that isn't text.")
    return TokenizerData(
        model=str(fields.get("tokenizer.ggml.model", "")),
        pre=str(fields.get("tokenizer.ggml.pre", "")),
        tokens=tokens,
        types=types,
        merges=merges,
        bos_id=_token_id(fields, "tokenizer.ggml.bos_token_id", vocab),
        eos_id=_token_id(fields, "tokenizer.ggml.eos_token_id", vocab),
    )


def _token_id(fields: dict[str, Any], name: str, vocab: int) -> int | None:
    """Return an optional id. Raises ModelFileInvalid if it is outside the vocabulary."""
    value = fields.get(name)
    if value is not None and not (isinstance(value, int) and 0 <= value < vocab):
        raise ModelFileInvalid(f"{name} is {value!r}, not an id below {vocab}.")
    return value


def open_model_file(path: Path | str) -> ModelFile:
    """Open a GGUF file of the llama architecture and check all of it.

    Raises a subclass of ModelFileError.
    """
    path = Path(path)
    fields, entries = read_header(path)
    config = _config(fields, entries)
    _check_tensors(config, entries)
    return ModelFile(
        path=path,
        sha256=file_sha256(path),
        name=str(fields.get("general.name", path.stem)),
        config=config,
        tokenizer=_tokenizer(fields, config.vocab),
        template=str(fields.get("tokenizer.chat_template", "")),
        entries=entries,
    )
