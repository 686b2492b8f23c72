"""Dequantised weights in the engine's layout, and their cache on disk (spec/07-host).

A cache file is: 8 bytes magic, 8 bytes little-endian header length, 32 bytes BLAKE3 of
everything after them, a JSON header, then raw tensors at offsets that are multiples of 64.
A file that fails a check is never used; it is rebuilt, with a warning. No pickle.
"""

import hashlib
import json
import logging
import mmap
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from blake3 import blake3

from model_host.engine.gguf_file import ModelFile
from model_host.model_config import ModelConfig

log = logging.getLogger(__name__)

# Names the conversion of a file's tensors to the engine's: dequantise in float32, un-permute
# query and key rows for half-split RoPE, fuse, round to the dtype. Change it with the code.
RECIPE = "gguf-dequantise-f32, half-split rope, fused qkv and gate-up, v1"

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
_MAGIC = b"ANTWGT1\n"
_HEADER_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Weights:
    """Tensors by the engine's names, and whether they came from the cache.

    embedding [V, W], norm [W], head [V, W] unless tied; per layer i: i.attn_norm [W],
    i.qkv [(H + 2 H_kv) D, W], i.out [W, H D], i.ffn_norm [W], i.gate_up [2 F, W], i.down [W, F].
    """

    tensors: dict[str, torch.Tensor]
    from_cache: bool


def recipe_digest() -> bytes:
    """Return the digest of the dequantisation recipe, 32 bytes."""
    return hashlib.sha256(RECIPE.encode()).digest()


def load_weights(file: ModelFile, dtype: str, cache_dir: Path | None) -> Weights:
    """Return the weights in the engine's layout, from the cache folder if possible.

    Without `cache_dir` nothing is read or written beside the model file. Raises a subclass
    of ModelFileError; a cache that can't be read or written is logged and not used.
    """
    if cache_dir is None:
        return Weights(_build(file, DTYPES[dtype]), from_cache=False)
    key = hashlib.sha256(file.sha256 + recipe_digest() + dtype.encode()).hexdigest()[:32]
    path = cache_dir / "weights" / f"{key}.weights"
    try:
        return Weights(_read(path), from_cache=True)
    except FileNotFoundError:
        log.info("weights_cache_missing path=%s", path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("weights_cache_rebuilt path=%s cause=%s", path, error)
    tensors = _build(file, DTYPES[dtype])
    try:
        _write(path, tensors)
    except OSError as error:
        log.warning("weights_cache_not_written path=%s cause=%s", path, error)
    return Weights(tensors, from_cache=False)


def unpermute(rows: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Reorder query or key rows from interleaved pairs to half-split RoPE.

    Row 2i + j of a head in GGUF's llama layout is row j D/2 + i in half-split layout.
    """
    width = rows.shape[1]
    pairs = rows.reshape(heads, -1, 2, width)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(-1, width)


def _build(file: ModelFile, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Dequantise, un-permute and fuse all tensors."""
    tied = [] if file.config.tied else ["output.weight"]
    raw = file.tensors(["token_embd.weight", "output_norm.weight", *tied])
    found = {"embedding": raw["token_embd.weight"], "norm": raw["output_norm.weight"]}
    if tied:
        found["head"] = raw["output.weight"]
    for layer in range(file.config.layers):
        found |= _build_layer(file, layer)
    return {name: torch.tensor(value, dtype=dtype) for name, value in found.items()}


def _build_layer(file: ModelFile, layer: int) -> dict[str, npt.NDArray[np.float32]]:
    """Return one layer's tensors in the engine's layout, float32."""
    config: ModelConfig = file.config
    prefix = f"blk.{layer}."
    names = [name for name in file.entries if name.startswith(prefix)]
    raw = {name[len(prefix) : -len(".weight")]: data for name, data in file.tensors(names).items()}
    query = unpermute(raw["attn_q"], config.heads)
    key = unpermute(raw["attn_k"], config.kv_heads)
    return {
        f"{layer}.attn_norm": raw["attn_norm"],
        f"{layer}.qkv": np.concatenate([query, key, raw["attn_v"]]),
        f"{layer}.out": raw["attn_output"],
        f"{layer}.ffn_norm": raw["ffn_norm"],
        f"{layer}.gate_up": np.concatenate([raw["ffn_gate"], raw["ffn_up"]]),
        f"{layer}.down": raw["ffn_down"],
    }


def _write(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write a cache file and rename it into place once it is durable."""
    header: dict[str, Any] = {}
    at = 0
    for name, tensor in tensors.items():
        dtype = next(key for key, value in DTYPES.items() if value is tensor.dtype)
        header[name] = [dtype, list(tensor.shape), at]
        at += -(-tensor.nbytes // 64) * 64
    encoded = json.dumps(header).encode()
    encoded += b" " * (-(len(encoded) + 48) % 64)
    digest = blake3(encoded)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
        try:
            file.write(_MAGIC + len(encoded).to_bytes(8, "little") + bytes(32) + encoded)
            for tensor in tensors.values():
                data = tensor.contiguous().view(-1).view(torch.uint8).numpy()
                for piece in (data.data, bytes(-tensor.nbytes % 64)):
                    digest.update(piece)
                    file.write(piece)
            file.seek(16)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise


def _read(path: Path) -> dict[str, torch.Tensor]:
    """Map a cache file, verify it, and copy its tensors out.

    Copies, so that a file changed after the check can't change a running model. Raises
    OSError, or ValueError, KeyError or TypeError for a file that fails a check.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:8] != _MAGIC:
            raise ValueError("wrong magic")
        size = int.from_bytes(data[8:16], "little")
        if not 0 < size <= min(_HEADER_BYTES_MAX, len(data) - 48):
            raise ValueError("wrong header length")
        with memoryview(data) as view, view[48:] as body:
            if blake3(body, max_threads=blake3.AUTO).digest() != view[16:48]:
                raise ValueError("wrong digest")
        header = json.loads(data[48 : 48 + size])
        tensors = {}
        for name, (dtype, shape, at) in header.items():
            tensor = torch.empty(shape, dtype=DTYPES[dtype])
            start = 48 + size + at
            if start + tensor.nbytes > len(data):
                raise ValueError(f"{name} lies outside the file")
            flat = tensor.view(-1).view(torch.uint8).numpy()
            flat[:] = np.frombuffer(data, np.uint8, tensor.nbytes, start)
            tensors[name] = tensor
        return tensors
