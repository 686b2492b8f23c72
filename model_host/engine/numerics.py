"""The start-up self-test and the numerics class (spec/07-host, "bit-exact").

Whether the rows of a kernel depend on each other is a property of the machine, so it is
measured: `self_test` runs exactly the closed set of shapes. The bits that the kernels
produce are measured too: the numerics class is the digest of a canary computation. So two
hosts are of one class if they compute alike, whatever their versions.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from model_host.engine.four_bits import GROUP
from model_host.engine.linear import int4_fits
from model_host.engine.model import Layer, Model, build_model
from model_host.engine.shapes import Shapes
from model_host.engine.slab_cache import SlabCache
from model_host.engine.step import attend, feed_forward, head, project, step
from model_host.engine.weights import DTYPES
from model_host.engine_api import CHUNK_TOKENS, Slice
from model_host.model_config import ModelConfig

CANARY_LAYERS = 2
CANARY_VOCAB = 1024
_CANARY_PARTS = (CHUNK_TOKENS, 75, 1, 16, 1)  # crosses a slab boundary, and ends with decode steps
_ROWS_FEW, _CUTS_FEW = 16, 8  # kernels for few rows are the ones that differ


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The result of the self-test: the shapes at which rows depended on each other."""

    failures: tuple[str, ...]
    shapes_run: int
    seconds: float

    @property
    def passed(self) -> bool:
        """Say whether the rows were independent at every shape."""
        return not self.failures


def synthetic(shape: tuple[int, ...], seed: int, scale: float) -> torch.Tensor:
    """Return float32 numbers in ±scale, the same on every machine, from integer mixing."""
    count = int(np.prod(shape))
    mixed = np.arange(count, dtype=np.uint32) * np.uint32(2654435761)
    mixed += np.uint32(seed * 40503 % 2**32)
    for _ in range(2):
        mixed ^= mixed >> np.uint32(16)
        mixed *= np.uint32(0x45D9F3B)
    mixed ^= mixed >> np.uint32(16)
    # 24 bits and powers of two: exact in float32.
    unit = (mixed >> np.uint32(8)).astype(np.float32) / np.float32(2**23) - np.float32(1)
    return torch.from_numpy(unit * np.float32(scale)).view(shape)


def synthetic_matrix(name: str, shape: tuple[int, int], seed: int) -> dict[str, torch.Tensor]:
    """Return a matrix [N, K] whose products are of the size of its inputs."""
    return {name: synthetic(shape, seed, 4.0 / shape[1] ** 0.5)}


def synthetic_four_bits(name: str, shape: tuple[int, int], seed: int) -> dict[str, torch.Tensor]:
    """Return such a matrix as nibbles and scales; see model_host/engine/weights.py."""
    rows, groups = shape[0], shape[1] // GROUP
    columns = ((synthetic((rows, groups, GROUP), seed, 1.0) + 1) * 8).to(torch.uint8)
    nibbles = columns[..., : GROUP // 2] | columns[..., GROUP // 2 :] << 4
    scales = 0.5 / shape[1] ** 0.5 * (1 + synthetic((groups, rows, 1), seed, 0.25))
    zeros = scales * synthetic((groups, rows, 1), seed + 1, 1.0)
    return {f"{name}.nibbles": nibbles, f"{name}.scales": torch.cat([scales, zeros], -1)}


def synthetic_model(config: ModelConfig, numerics: str, shapes: Shapes) -> Model:
    """Build a model of the same widths with two layers and synthetic weights.

    Under q4 the first layer is of four bits and the second isn't: a file may have both.
    """
    small = replace(
        config,
        layers=CANARY_LAYERS,
        vocab=CANARY_VOCAB,
        tied=True,
        context_tokens=sum(_CANARY_PARTS),
    )
    # Independent of the context of the real model: one machine has one class.
    shapes = replace(shapes, keys_max=small.context_tokens)
    query, kv = small.heads * small.head_width, small.kv_heads * small.head_width
    sizes = {
        "qkv": (query + 2 * kv, small.width),
        "out": (small.width, query),
        "gate_up": (2 * small.ffn_width, small.width),
        "down": (small.width, small.ffn_width),
    }
    tensors = {"embedding": synthetic((small.vocab, small.width), 1, 1.0)}
    tensors["norm"] = 1 + synthetic((small.width,), 2, 0.25)
    for index in range(small.layers):
        for at, (name, shape) in enumerate(sizes.items()):
            in_four_bits = numerics == "q4" and index == 0 and int4_fits(*shape)
            make = synthetic_four_bits if in_four_bits else synthetic_matrix
            tensors |= make(f"{index}.{name}", shape, 16 * index + 4 + at)
        tensors |= _synthetic_vectors(small, index)
    dtype = DTYPES[numerics]
    converted = {k: t.to(dtype) if t.is_floating_point() else t for k, t in tensors.items()}
    return build_model(small, converted, shapes)


def _synthetic_vectors(config: ModelConfig, index: int) -> dict[str, torch.Tensor]:
    """Return norms and biases of one layer, as far as the configuration has them."""
    query, kv = config.heads * config.head_width, config.kv_heads * config.head_width
    vectors = {
        "attn_norm": 1 + synthetic((config.width,), 16 * index + 12, 0.25),
        "ffn_norm": 1 + synthetic((config.width,), 16 * index + 13, 0.25),
    }
    if config.qkv_bias:
        vectors["qkv.bias"] = synthetic((query + 2 * kv,), 16 * index + 14, 1.0)
    if config.qk_norm:
        heads = (config.heads + config.kv_heads, config.head_width)
        vectors["qk_norm"] = 1 + synthetic(heads, 16 * index + 15, 0.25)
    return {f"{index}.{name}": vector for name, vector in vectors.items()}


def numerics_class(config: ModelConfig, numerics: str, shapes: Shapes) -> bytes:
    """Run the canary and digest its logits, keys and values, 32 bytes.

    The canary runs the step function: linear layers of the model's widths, RMSNorm, RoPE,
    attention with its softmax, SiLU. It depends on no weight of the model.
    """
    model = synthetic_model(config, numerics, shapes)
    cache = SlabCache(model.config, model.dtype)
    digest = hashlib.sha256(f"antiphon/numerics/v2 {numerics}".encode())
    for count in _CANARY_PARTS:
        at = cache.tokens
        ids = [(7 * (at + row) + 3) % CANARY_VOCAB for row in range(count)]
        (logits,) = step(model, [Slice(cache, ids, logits=min(count, 16))])
        digest.update(logits.numpy().tobytes())
    digest.update(cache.read(0, cache.tokens).tobytes())
    return digest.digest()


def self_test(model: Model) -> SelfTest:
    """Run every shape of the closed set on the model's own layer and compare bits.

    Each smaller shape must give the same rows as the largest one.
    """
    started = time.monotonic()
    failures: list[str] = []
    run = 0
    with torch.inference_mode():
        for name, same in (*_rows_agree(model), *_keys_agree(model)):
            run += 1
            if not same:
                failures.append(name)
    return SelfTest(tuple(failures), run, time.monotonic() - started)


def _cuts(rows: int, of: int, turn: int) -> list[int]:
    """Return offsets to cut `rows` out of `of` rows: many for few rows, else one by `turn`."""
    last = of - rows
    if rows > _ROWS_FEW:
        return [last * (turn % 3) // 2]
    return sorted({last * index // (_CUTS_FEW - 1) for index in range(_CUTS_FEW)})


def _rows_agree(model: Model) -> Iterator[tuple[str, bool]]:
    """Compare the row-wise functions at each row bucket, with each kernel that a layer has."""
    config = model.config
    rows = synthetic((CHUNK_TOKENS, config.width), 99, 4.0)
    wide = synthetic((CHUNK_TOKENS, config.heads * config.head_width), 98, 1.0).to(model.dtype)
    # Positions would differ between cuts of the rows, so all rows have the same one.
    kinds = config.heads + 2 * config.kv_heads
    cos = model.cos[1].expand(CHUNK_TOKENS, kinds, -1).contiguous()
    sin = model.sin[1].expand(CHUNK_TOKENS, kinds, -1).contiguous()

    def projected(layer: Layer, x: torch.Tensor) -> torch.Tensor:
        return project(model, layer, x, cos[: len(x)], sin[: len(x)])

    parts: list[tuple[str, Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = []
    for layer in _distinct(model.layers):
        parts += [
            ("project", partial(projected, layer), rows),
            ("out", layer.out, wide),
            ("feed_forward", partial(feed_forward, model, layer), rows),
        ]
    parts.append(("head", partial(head, model), rows))
    sizes = sorted({model.shapes.linear_rows(bucket) for bucket in model.shapes.row_buckets})
    for name, function, given in parts:
        whole = function(given)
        for turn, size in enumerate(sizes):
            # Measured: kernels for very few rows differ in a tenth of the rows only.
            thorough = name != "head" and size < _ROWS_FEW
            offsets = range(0, CHUNK_TOKENS, size) if thorough else _cuts(size, CHUNK_TOKENS, turn)
            same = all(
                torch.equal(function(given[at : at + size].clone()), whole[at : at + size])
                for at in offsets
            )
            yield f"{name} rows={size}", same


def _distinct(layers: Iterable[Layer]) -> Iterable[Layer]:
    """Return the first layer with each combination of linear kernels."""
    found: dict[tuple[type, ...], Layer] = {}
    for layer in layers:
        kernels = (layer.qkv, layer.out, layer.gate_up, layer.down)
        found.setdefault(tuple(map(type, kernels)), layer)
    return found.values()


def _keys_agree(model: Model) -> Iterator[tuple[str, bool]]:
    """Compare attention at each pair of row and key bucket, with the model's own heads.

    The rows of a chunk are at every other position of the bucket's last two key blocks, and
    the queries of its second half repeat those of the first. So the second half of one
    bucket equals the first half of the next bucket, with one more masked block.
    """
    config, shapes, group = model.config, model.shapes, model.config.group
    size = (2, 1, config.kv_heads, shapes.key_buckets[-1], config.head_width)
    stored = synthetic(size, 97, 2.0).to(model.dtype)
    full = CHUNK_TOKENS * group
    query = synthetic((1, config.kv_heads, full // 2, config.head_width), 96, 2.0)
    query = torch.cat([query, query], 2).to(model.dtype)
    before: torch.Tensor | None = None
    for keys in shapes.key_buckets:
        positions = keys - 2 * shapes.key_block + 2 * (torch.arange(full) // group)
        hidden = torch.arange(keys) > positions.clamp_(min=0)[:, None]
        mask = torch.zeros((full, keys), dtype=model.dtype).masked_fill_(hidden, float("-inf"))

        def run(at: int, rows: int, mask: torch.Tensor = mask, keys: int = keys) -> torch.Tensor:
            cut = query[:, :, at : at + rows].clone()
            seen = stored[:, :, :, :keys]
            return attend(cut, seen[0], seen[1], mask[at : at + rows])

        whole = run(0, full)
        for turn, bucket in enumerate(shapes.row_buckets[:-1]):
            rows = shapes.query_rows(bucket, group)
            same = all(
                torch.equal(run(at, rows), whole[:, :, at : at + rows])
                for at in _cuts(rows, full, turn + keys // shapes.key_block)
            )
            yield f"attention rows={rows} keys={keys}", same
        if before is not None:
            same = torch.equal(whole[:, :, : full // 2], before[:, :, full // 2 :])
            yield f"attention rows={full} keys={keys - shapes.key_block} and {keys}", same
        before = whole
