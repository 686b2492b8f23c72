"""Weights in the engine's layout (spec/07-host §7).

The cache on disk (model_host/engine/weights_cache.py) holds four-bit numbers as the model
file does. They are packed at load, since the packed order is another one on each kind of
CPU.
"""

import hashlib
import itertools
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from model_host.engine.four_bits import FourBits
from model_host.engine.linear import half_available, int4_available, int4_fits, packed_available
from model_host.engine.model_file import ModelFile
from model_host.engine.weights_cache import InUse, WeightsCache
from model_host.errors import NumericsUnsupported
from replica.refusals import ArgumentInvalid

# Names the conversion of a file's tensors to the engine's: dequantise in float32, un-permute
# query and key rows for half-split RoPE, fuse, round to the dtype; under q4 keep the fused
# matrices whose parts are all of four bits. Change it with the code.
RECIPE = "dequantise-f32, half-split rope, fused qkv and gate-up, bf16 scale and zero of q4, v2"

DTYPES = {"q4": torch.bfloat16, "bf16": torch.bfloat16, "fp32": torch.float32}
"""Numerics, and the number format of their activations, keys and values."""
_FUSED = {
    "qkv": ("attn_q", "attn_k", "attn_v"),
    "out": ("attn_output",),
    "gate_up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}


@dataclass(frozen=True, slots=True)
class Weights:
    """Tensors by the engine's names, and whether they came from the cache.

    embedding [V, W], norm [W], head [V, W] unless tied; per layer i: i.attn_norm [W],
    i.qkv [(H + 2 H_kv) D, W], i.out [W, H D], i.ffn_norm [W], i.gate_up [2 F, W], i.down [W, F];
    i.qkv.bias [(H + 2 H_kv) D] and i.qk_norm [H + H_kv, D] where the model has them.
    Under q4 a matrix m [N, K] may be two tensors: m.nibbles, uint8 [N, K / 32, 16] as in
    `FourBits`, and m.scales, [K / 32, N, 2] with scale and zero of each group.
    """

    tensors: dict[str, torch.Tensor]
    from_cache: bool
    in_use: InUse | None = None
    """Keeps the cache file from eviction until it is closed."""


def recipe_digest() -> bytes:
    """Return the digest of the dequantisation recipe, 32 bytes."""
    return hashlib.sha256(RECIPE.encode()).digest()


def check_numerics(numerics: str) -> None:
    """Raise ArgumentInvalid for an unknown name, NumericsUnsupported where the CPU is too old."""
    if numerics not in DTYPES:
        raise ArgumentInvalid(f"numerics: {numerics!r}; one of {', '.join(DTYPES)}")
    if numerics == "q4" and not int4_available():
        capability = torch.backends.cpu.get_cpu_capability()
        raise NumericsUnsupported(
            f"q4 needs AVX2 or AVX-512; torch reports the CPU capability {capability}."
        )


def soonest_numerics(file: ModelFile) -> str:
    """Return the numerics in which this machine ends a user's turn soonest (DECISIONS D286)."""
    if _has_four_bits(file) and int4_available():
        return "q4"
    return "bf16" if half_available() or packed_available(torch.bfloat16) else "fp32"


def load_weights(file: ModelFile, numerics: str, cache: WeightsCache | None) -> Weights:
    """Return the weights in the engine's layout, from the cache if possible.

    Without a cache nothing is read or written beside the model file. Raises a subclass of
    ModelFileError, or NumericsUnsupported; a cache that can't be read or written is logged
    and not used.
    """
    if numerics == "q4" and not _has_four_bits(file):
        raise NumericsUnsupported(f"{file.path} has no weights in Q4_0, Q4_1 or Q4_K.")
    if cache is None:
        return Weights(_build(file, numerics), from_cache=False)
    # No part of the key is a property of the CPU: the numbers are those of the file.
    key = hashlib.sha256(file.sha256 + recipe_digest() + numerics.encode()).hexdigest()[:32]
    found = cache.read(key)
    if found is not None:
        return Weights(found[0], from_cache=True, in_use=found[1])
    tensors = _build(file, numerics)
    return Weights(tensors, from_cache=False, in_use=cache.write(key, tensors))


def unpermute(rows: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """Reorder query or key rows from interleaved pairs to half-split RoPE.

    Row 2i + j of a head in GGUF's llama layout is row j D/2 + i in half-split layout. A row
    may be a number or an array of any shape.
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _build(file: ModelFile, numerics: str) -> dict[str, torch.Tensor]:
    """Convert all tensors, one matrix at a time. Raises ModelFileChanged."""
    dtype = DTYPES[numerics]
    names = {"embedding": "token_embd.weight", "norm": "output_norm.weight"}
    if not file.config.tied:
        names["head"] = "output.weight"
    found = {name: torch.tensor(file.tensors.read(names[name]), dtype=dtype) for name in names}
    for layer in range(file.config.layers):
        found |= _build_layer(file, layer, numerics)
    file.check_unchanged()
    return found


def _build_layer(file: ModelFile, layer: int, numerics: str) -> dict[str, torch.Tensor]:
    """Return one layer's tensors in the engine's layout."""
    found: dict[str, torch.Tensor] = {}
    for fused in _FUSED:
        found |= _build_matrix(file, layer, fused, numerics)
    vectors = {"attn_norm": file.tensors.read(f"blk.{layer}.attn_norm.weight")}
    vectors["ffn_norm"] = file.tensors.read(f"blk.{layer}.ffn_norm.weight")
    config = file.config
    if config.qkv_bias:
        parts = [
            _reorder(file, part, file.tensors.read(f"blk.{layer}.{part}.bias"))
            for part in _FUSED["qkv"]
        ]
        vectors["qkv.bias"] = np.concatenate(parts)
    if config.qk_norm:
        query = file.tensors.read(f"blk.{layer}.attn_q_norm.weight")
        key = file.tensors.read(f"blk.{layer}.attn_k_norm.weight")
        vectors["qk_norm"] = np.stack([query] * config.heads + [key] * config.kv_heads)
    dtype = DTYPES[numerics]
    return found | {f"{layer}.{k}": torch.tensor(v, dtype=dtype) for k, v in vectors.items()}


def _build_matrix(
    file: ModelFile, layer: int, fused: str, numerics: str
) -> dict[str, torch.Tensor]:
    """Return one fused matrix of a layer, as one tensor or as nibbles and scales."""
    key, parts = f"{layer}.{fused}", _parts(layer, fused)
    if numerics == "q4" and _is_four_bits(file, parts):
        matrices = [
            file.tensors.read_four_bits(name).map_rows(partial(_reorder, file, part))
            for part, name in parts.items()
        ]
        matrix = FourBits.concatenate(matrices)
        scales = np.stack([matrix.scales.T, matrix.zeros.T], -1)
        return {
            f"{key}.nibbles": torch.from_numpy(matrix.nibbles),
            f"{key}.scales": torch.tensor(scales, dtype=DTYPES[numerics]),
        }
    rows = [_reorder(file, part, file.tensors.read(name)) for part, name in parts.items()]
    return {key: torch.tensor(np.concatenate(rows), dtype=DTYPES[numerics])}


def _parts(layer: int, fused: str) -> dict[str, str]:
    """Return the file's names of the matrices that a fused one consists of."""
    return {part: f"blk.{layer}.{part}.weight" for part in _FUSED[fused]}


def _reorder(file: ModelFile, part: str, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the rows of a matrix or bias in half-split order."""
    heads = {"attn_q": file.config.heads, "attn_k": file.config.kv_heads}.get(part)
    return unpermute(rows, heads) if file.interleaved and heads else rows


def _is_four_bits(file: ModelFile, parts: dict[str, str]) -> bool:
    """Say whether all parts of a fused matrix are of four bits, and the kernel accepts it."""
    shapes = [file.tensors.shapes[name] for name in parts.values()]
    fits = int4_fits(sum(rows for rows, _ in shapes), shapes[0][1])
    return fits and all(map(file.tensors.is_four_bits, parts.values()))


def _has_four_bits(file: ModelFile) -> bool:
    """Say whether any matrix of the layers stays in four bits."""
    places = itertools.product(range(file.config.layers), _FUSED)
    return any(_is_four_bits(file, _parts(*place)) for place in places)
