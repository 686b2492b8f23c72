"""GGUF model files of the llama, qwen2 and qwen3 architectures (spec/07-host §7).

The package gguf provides the layout and the dequantisation of tensors. No torch here.
"""

from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from model_host.engine import rope_scaling, sentence_pieces
from model_host.engine.file_digest import file_sha256, file_state
from model_host.engine.four_bits import FOUR_BIT_TYPES, FourBits, four_bits
from model_host.engine.generation_config import from_gguf
from model_host.engine.gguf_header import TensorEntry, read_header
from model_host.engine.model_file import (
    ModelFile,
    TokenizerData,
    check_config,
    check_tensors,
    check_token_id,
    count,
    name_from,
    naming,
    number,
    read_part,
)
from model_host.errors import (
    ModelArchitectureUnknown,
    ModelFileInvalid,
    ModelTensorMissing,
)
from model_host.model_config import ModelConfig

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Mistral's models are files of the llama architecture."""
_ROPE_FACTORS = "rope_freqs.weight"
_SCALES = ("logit_scale", "embedding_scale", "residual_scale", "attention.scale")
_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class GgufTensors:
    """The tensors of a GGUF file, a `TensorSource`."""

    path: Path
    entries: dict[str, TensorEntry]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor, outermost dimension first."""
        return {name: entry.shape for name, entry in self.entries.items()}

    def _bytes(self, name: str) -> _Bytes:
        entry = self.entries[name]
        return read_part(self.path, entry.offset, entry.nbytes, name)

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """Dequantise a tensor to float32.

        Raises ModelFileMissing, ModelFileTruncated, or ModelArchitectureUnknown for a
        quantisation that the gguf package can't undo.
        """
        data, entry = self._bytes(name), self.entries[name]
        if entry.type is GGMLQuantizationType.F32:
            return data.view("<f4").reshape(entry.shape)
        if entry.type is GGMLQuantizationType.F16:
            return data.view("<f2").astype(np.float32).reshape(entry.shape)
        rows = data.reshape(*entry.shape[:-1], -1)
        try:
            return np.asarray(dequantize(rows, entry.type), np.float32).reshape(entry.shape)
        except NotImplementedError as error:
            raise ModelArchitectureUnknown(f"{name} is quantised as {entry.type.name}.") from error

    def is_four_bits(self, name: str) -> bool:
        """Say whether a tensor is a matrix of four-bit numbers in groups of 32."""
        entry = self.entries[name]
        return entry.type in FOUR_BIT_TYPES and len(entry.shape) == 2

    def read_four_bits(self, name: str) -> FourBits:
        """Read such a matrix as it is. Raises ModelFileMissing or ModelFileTruncated."""
        entry = self.entries[name]
        return four_bits(self._bytes(name), entry.type, entry.shape)


def _check_options(options: dict[str, Any]) -> None:
    """Raise ModelArchitectureUnknown for options that the engine lacks."""
    if options.get("expert_count", 0):
        raise ModelArchitectureUnknown("The engine doesn't run mixtures of experts.")
    for name in _SCALES:
        if options.get(name, 0.0):
            raise ModelArchitectureUnknown(f"The engine doesn't apply {name}.")
    if not options.get("attention.causal", True):
        raise ModelArchitectureUnknown("The engine runs causal attention only.")


def _config(fields: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> ModelConfig:
    """Read the configuration. Raises ModelArchitectureUnknown for options the engine lacks."""
    family = fields.get("general.architecture")
    if family not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ModelArchitectureUnknown(f"The engine runs {known}, not {family!r}.")
    options = {key.removeprefix(f"{family}."): value for key, value in fields.items()}
    _check_options(options)
    width, heads = count(options, "embedding_length"), count(options, "attention.head_count")
    kv_heads = count(options, "attention.head_count_kv", heads)
    head_width = count(options, "attention.key_length", width // heads)
    rotated = count(options, "rope.dimension_count", head_width)
    values = count(options, "attention.value_length", head_width)
    if rotated != head_width or values != head_width or head_width % 2 or heads % kv_heads:
        raise ModelArchitectureUnknown(
            f"{heads} heads of {head_width} over {kv_heads}, {rotated} rotated, can't run."
        )
    embedding = shapes.get("token_embd.weight")
    if embedding is None or len(embedding) != 2:
        raise ModelTensorMissing("token_embd.weight is missing or isn't a matrix.")
    context, base = count(options, "context_length"), number(options, "rope.freq_base", 10_000.0)
    if options.get("attention.sliding_window"):
        # In a context that the window holds, attention is the same without it.
        context = min(context, count(options, "attention.sliding_window"))
    return ModelConfig(
        layers=count(options, "block_count"),
        width=width,
        ffn_width=count(options, "feed_forward_length"),
        heads=heads,
        kv_heads=kv_heads,
        head_width=head_width,
        vocab=embedding[0],
        context_tokens=context,
        rope_base=float(base),
        rms_eps=float(number(options, "attention.layer_norm_rms_epsilon")),
        tied="output.weight" not in shapes,
        qkv_bias=family == "qwen2" or "blk.0.attn_q.bias" in shapes,
        qk_norm=family == "qwen3",
    )


def _with_rope_scaling(
    config: ModelConfig, fields: dict[str, Any], tensors: GgufTensors
) -> ModelConfig:
    """Apply a scaling, and the factors that Llama 3.1 and later have as a tensor.

    There are as many divisors as the width of a head says: the tensors are checked before.
    Raises ModelArchitectureUnknown or ModelFileInvalid.
    """
    prefix = f"{fields['general.architecture']}.rope.scaling"
    divisors = rope_scaling.divisors(
        str(fields.get(f"{prefix}.type", "none")),
        {"factor": fields.get(f"{prefix}.factor")},
        head_width=config.head_width,
        base=config.rope_base,
    )
    if _ROPE_FACTORS in tensors.shapes:
        divisors = rope_scaling.combine(divisors, map(float, tensors.read(_ROPE_FACTORS)))
    return replace(config, rope_divisors=divisors)


def _tokenizer(fields: dict[str, Any], vocab: int) -> TokenizerData:
    """Read the tokenizer fields; model_host/engine/tokenizer.py checks that it can rebuild it."""
    tokens, merges = _texts(fields, "tokens"), _texts(fields, "merges")
    types = fields.get("tokenizer.ggml.token_type") or (1,) * len(tokens)
    if not isinstance(types, tuple) or not all(isinstance(kind, int) for kind in types):
        raise ModelFileInvalid("tokenizer.ggml.token_type isn't a list of whole numbers.")
    if len(tokens) != vocab or len(types) != vocab:
        raise ModelFileInvalid(f"{len(tokens)} tokens and {len(types)} types for {vocab} rows.")
    model, pre = (str(fields.get(f"tokenizer.ggml.{name}", "")) for name in ("model", "pre"))
    if model == sentence_pieces.MODEL:
        merges = sentence_pieces.merges_by_score(tokens, types, _scores(fields, vocab))
        pre = sentence_pieces.SPACED if _adds_spaces(fields) else sentence_pieces.PLAIN
    eos_id = _token_id(fields, "eos", vocab)
    ends = {_token_id(fields, name, vocab) for name in ("eot", "eom")}
    return TokenizerData(
        model=model,
        pre=pre,
        tokens=tokens,
        types=types,
        merges=merges,
        bos_id=_token_id(fields, "bos", vocab),
        eos_id=eos_id,
        end_ids=tuple(sorted(i for i in ends - {eos_id} if i is not None)),
    )


def _adds_spaces(fields: dict[str, Any]) -> bool:
    """Say whether text behind a control token begins with a space, as it does by default."""
    found = fields.get("tokenizer.ggml.add_space_prefix", True)
    if not isinstance(found, bool):
        raise ModelFileInvalid("tokenizer.ggml.add_space_prefix isn't true or false.")
    return found


def _scores(fields: dict[str, Any], vocab: int) -> tuple[float, ...]:
    """Return the scores of pieces, which order their merges."""
    found = fields.get("tokenizer.ggml.scores")
    if not isinstance(found, tuple) or len(found) != vocab or not all(map(_is_finite, found)):
        raise ModelFileInvalid(f"tokenizer.ggml.scores isn't a list of {vocab} numbers.")
    return found


def _is_finite(score: object) -> bool:
    return isinstance(score, float) and isfinite(score)


def _texts(fields: dict[str, Any], name: str) -> tuple[str, ...]:
    found = fields.get(f"tokenizer.ggml.{name}", ())
    if not isinstance(found, tuple) or not all(isinstance(text, str) for text in found):
        raise ModelFileInvalid(f"tokenizer.ggml.{name} isn't a list of texts.")
    return found


def _token_id(fields: dict[str, Any], name: str, vocab: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    return check_token_id(fields.get(key), key, vocab)


def open_model_file(path: Path | str) -> ModelFile:
    """Open a GGUF file and check all of it. Raises a subclass of ModelFileError."""
    with naming(Path(path)):
        return _open(Path(path))


def _open(path: Path) -> ModelFile:
    states = {path: file_state(path)}
    fields, entries = read_header(path)
    tensors = GgufTensors(path, entries)
    config = _config(fields, tensors.shapes)
    check_config(config)
    check_tensors(config, tensors.shapes, optional={_ROPE_FACTORS: (config.head_width // 2,)})
    config = _with_rope_scaling(config, fields, tensors)
    return ModelFile(
        path=path,
        sha256=file_sha256(path),
        name=name_from(fields.get("general.name"), path.stem),
        config=config,
        tokenizer=_tokenizer(fields, config.vocab),
        template=str(fields.get("tokenizer.chat_template", "")),
        interleaved=fields["general.architecture"] == "llama",
        tensors=tensors,
        states=states,
        sampling=from_gguf(fields),
    )
