"""The start-up self-test and the numerics class (spec/07-host, "bit-exact").

Whether the rows of a kernel depend on each other is a property of the machine, so it is
measured: `self_test` runs exactly the closed set of shapes. The bits that the kernels
produce are measured too: the numerics class is the digest of a canary computation. So two
hosts are of one class if they compute alike, whatever their versions.
"""

import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from model_host.engine import attention, kernels
from model_host.engine.attention_plan import Call
from model_host.engine.compute_threads import compute_threads
from model_host.engine.four_bits import GROUP
from model_host.engine.layers import Residual, feed_forward, head, project
from model_host.engine.linear import int4_fits, multiply
from model_host.engine.model import Layer, Model, build_model
from model_host.engine.shapes import HEAD_ROWS_MAX, Shapes
from model_host.engine.slab_memory import TorchSlabMemory
from model_host.engine.step import step
from model_host.engine.weights import DTYPES
from model_host.engine_api import CHUNK_TOKENS, Slice
from model_host.kv import SLAB_TOKENS, canonical_json
from model_host.model_config import ModelConfig

CANARY_LAYERS = 2
CANARY_VOCAB = 1024
_CANARY_PARTS = (500, 75, 1, 16, 1)  # a chunk across the border of two slabs, and decode steps
_CANARY_BESIDE = 70  # tokens of the second sequence
_ROWS_FEW, _CUTS_FEW = 16, 8  # kernels for few rows are the ones that differ
_BATCHES = (2, 3, 8, 33)
_MERGED = (2, 3, 4, 7)
_LIBRARIES = ("ATEN_", "DNNL_", "GOMP_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_", "TORCH_")
"""Beginnings of the names of variables by which users choose kernels."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The result of the self-test: the shapes at which rows depended on each other."""

    failures: tuple[str, ...]
    shapes_run: int
    seconds: float
    threads_agree: bool = False
    """All compute threads give the bits that one fewer gives."""
    was_kept: bool = False
    """It is the result of an earlier start (model_host/engine/kept_verdicts.py)."""

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
        context_tokens=sum(_CANARY_PARTS) + 1,
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


@dataclass(slots=True)
class _Pages:
    """The pages of a sequence that the canary computes."""

    slabs: Sequence[int]
    tokens: int = 0


def numerics_class(config: ModelConfig, numerics: str, shapes: Shapes) -> bytes:
    """Run the canary and digest its logits, keys and values, 32 bytes.

    The canary runs the step function: linear layers of the model's widths, RMSNorm, RoPE,
    attention with its softmax and merge, SiLU. It prefills two sequences and ends with a
    step of both. It depends on no weight of the model.
    """
    model = synthetic_model(config, numerics, shapes)
    memory = TorchSlabMemory(model.config, model.dtype, 3)
    one, other = _Pages((2, 0)), _Pages((1,))
    digest = hashlib.sha256(f"antiphon/numerics/v3 {numerics}".encode())

    def run(*parts: tuple[_Pages, int]) -> None:
        batch = [
            Slice(
                pages,
                [(7 * (pages.tokens + row) + 3) % CANARY_VOCAB for row in range(count)],
                logits=min(count, 16),
            )
            for pages, count in parts
        ]
        for logits in step(model, memory, batch):
            digest.update(logits.numpy().tobytes())
        for pages, count in parts:
            pages.tokens += count

    for count in _CANARY_PARTS:
        run((one, count))
    run((other, _CANARY_BESIDE))
    run((one, 1), (other, 1))
    for slab, tokens in ((2, SLAB_TOKENS), (0, one.tokens - SLAB_TOKENS), (1, other.tokens)):
        digest.update(memory.read(slab, 0, tokens).tobytes())
    return digest.digest()


def threads_agree(
    config: ModelConfig, numerics: str, shapes: Shapes, numerics_class_: bytes
) -> bool:
    """Say whether the canary is of the same numerics class with one compute thread fewer."""
    fewer = max(1, torch.get_num_threads() - 1)
    with compute_threads(fewer):
        return numerics_class(config, numerics, shapes) == numerics_class_


def machine_description() -> dict[str, str]:
    """Return the processor and the build of torch, as far as the self-test depends on them."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if platform.system() == "Linux" else []
    wanted = ("model name", "flags", "Features", "CPU part")
    named = sorted({line for line in lines if line.startswith(wanted)})
    chosen = sorted(item for item in os.environ.items() if item[0].startswith(_LIBRARIES))
    return {
        "cpu": "\n".join(named) or f"{platform.machine()} {platform.processor()}",
        "libraries": canonical_json(dict(chosen)),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "build": torch.__config__.show(),
        "threads": str(torch.get_num_threads()),
    }


def code_digest() -> bytes:
    """Return the digest of the engine's own sources, 32 bytes: they choose the kernels."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def verdict_key(
    machine: dict[str, str],
    config: ModelConfig,
    numerics: str,
    shapes: Shapes,
    *,
    weights: bytes,
    code: bytes,
) -> bytes:
    """Return the digest of everything the result of the self-test depends on, 32 bytes. Pure.

    `weights` is the digest of the model's, since the test runs on its layers, and `code`
    that of the engine.
    """
    parts = {
        "machine": machine,
        "config": asdict(config),
        "numerics": numerics,
        "shapes": shapes.describe(),
        "weights": weights.hex(),
        "code": code.hex(),
    }
    return hashlib.sha256(b"antiphon/self-test/v2\0" + canonical_json(parts).encode()).digest()


def self_test(model: Model) -> SelfTest:
    """Run every shape of the closed set on the model's own layer and compare bits.

    Each smaller shape must give the same rows as the largest one. All is compared before it
    is rounded to the model's dtype, where that comes last.
    """
    started = time.monotonic()
    failures: list[str] = []
    run = 0
    with torch.inference_mode():
        for name, same in _checks(model):
            run += 1
            if not same:
                failures.append(name)
    return SelfTest(tuple(failures), run, time.monotonic() - started)


def _checks(model: Model) -> Iterator[tuple[str, bool]]:
    """Yield the name of each check, and whether it held."""
    yield from _rows_agree(model)
    yield from _attention_agrees(model)
    yield from _merges_agree(model)


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
        heads = torch.empty_like(cos[: len(x)])
        rotary = cos[: len(x)], sin[: len(x)]
        project(layer, Residual.make(model, x), rotary, heads, config.rms_eps)
        return heads

    def fed_forward(layer: Layer, x: torch.Tensor) -> torch.Tensor:
        return feed_forward(layer, Residual.make(model, x), model.dtype)

    parts: list[tuple[str, Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = []
    for layer in _distinct(model.layers):
        parts += [
            ("project", partial(projected, layer), rows),
            ("out", partial(multiply, layer.out), wide),
            ("feed_forward", partial(fed_forward, layer), rows),
        ]
    parts.append(("head", lambda x: head(model, Residual.make(model, x)), rows[:HEAD_ROWS_MAX]))
    for name, function, given in parts:
        whole = function(given)
        sizes = [size for size in model.shapes.linear_sizes if size <= len(given)]
        for turn, size in enumerate(sizes):
            # Measured: kernels for very few rows differ in a tenth of the rows only.
            thorough = name != "head" and size < _ROWS_FEW
            every = range(0, len(given) - size + 1, size)
            offsets = every if thorough else _cuts(size, len(given), turn)
            same = all(
                torch.equal(function(given[at : at + size].clone()), whole[at : at + size])
                for at in offsets
            )
            yield f"{name} rows={size}", same


def _distinct(layers: Iterable[Layer]) -> Iterable[Layer]:
    """Return the first layer with each combination of linear kernels."""
    found: dict[tuple[str, ...], Layer] = {}
    for layer in layers:
        linears = (layer.qkv, layer.out, layer.gate_up, layer.down)
        found.setdefault(tuple(linear.kernel for linear in linears), layer)
    return found.values()


class _Slabs:
    """A few slabs of keys and values, and queries, of the model's own heads."""

    def __init__(self, model: Model) -> None:
        config = model.config
        shape = (2, max(_BATCHES), config.kv_heads, SLAB_TOKENS, config.head_width)
        self.keys, self.values = synthetic(shape, 97, 2.0).to(model.dtype)
        self.rows = SLAB_TOKENS * config.group
        size = (1, config.kv_heads, len(model.masks), config.head_width)
        self.query = synthetic(size, 96, 2.0).to(model.dtype)

    def attend(
        self, query: torch.Tensor, keys: int, mask: torch.Tensor | None, at: int = 0
    ) -> torch.Tensor:
        """Attend over the first keys of slabs from `at`; return result and lse, float32."""
        size = len(query)
        seen, values = self.keys[at : at + size, :, :keys], self.values[at : at + size, :, :keys]
        result, lse = kernels.attend(query, seen, values, mask)
        return torch.cat([result.float(), lse[..., None]], -1)


def _attention_agrees(model: Model) -> Iterator[tuple[str, bool]]:
    """Compare attention at each number of rows and keys, under masks and without."""
    shapes, group, masks = model.shapes, model.config.group, model.masks
    slabs = _Slabs(model)
    query, full = slabs.query, slabs.rows
    causal = slabs.attend(query[:, :, :full], SLAB_TOKENS, masks[:full])
    every = slabs.attend(query[:, :, :full], SLAB_TOKENS, masks[full:][:1].expand(full, -1))

    def masked(at: int, rows: int, keys: int) -> bool:
        real = min(rows, group * keys - at)
        got = slabs.attend(query[:, :, at : at + rows], keys, masks[at : at + rows, :keys])
        return torch.equal(got[:, :, :real], causal[:, :, at : at + real])

    def unmasked(at: int, rows: int) -> bool:
        got = slabs.attend(query[:, :, at : at + rows], SLAB_TOKENS, None)
        return torch.equal(got, every[:, :, at : at + rows])

    for turn, rows in enumerate(shapes.query_sizes(group)):
        for keys in shapes.key_cuts:
            if rows - shapes.query_step(rows) < group * keys:
                offsets = _cuts(min(rows, group * keys), group * keys, turn + keys)
                same = all(masked(at // group * group, rows, keys) for at in offsets)
                yield f"attention rows={rows} keys={keys}", same
        if rows <= full:
            same = all(unmasked(at, rows) for at in _cuts(rows, full, turn))
            yield f"attention rows={rows} without a mask", same
    yield from _batches_agree(model, slabs, causal)


def _batches_agree(model: Model, slabs: _Slabs, causal: torch.Tensor) -> Iterator[tuple[str, bool]]:
    """Compare calls over several slabs with calls over one."""
    shapes, group, masks = model.shapes, model.config.group, model.masks
    rows, many = shapes.query_rows(group), max(_BATCHES)
    for keys in shapes.key_cuts:
        # The rows of one token, each at another place of the slab.
        places = [(keys - 1) * (many - 1 - slab) // (many - 1) for slab in range(many)]
        tokens = [slabs.query[:, :, group * at :][:, :, :rows] for at in places]
        hidden = [masks[group * at, :keys].expand(1, 1, 1, -1) for at in places]
        single = [slabs.attend(tokens[at], keys, hidden[at], at) for at in range(many)]
        alone = torch.equal(
            single[0][:, :, :group], causal[:, :, group * (keys - 1) : group * keys]
        )
        plain = torch.equal(
            slabs.attend(tokens[0], keys, None)[:, :, :group], single[0][:, :, :group]
        )
        yield f"attention of one token keys={keys}", alone and plain
        for size in _BATCHES:
            got = slabs.attend(torch.cat(tokens[:size]), keys, torch.cat(hidden[:size]))
            yield (
                f"attention of {size} slabs keys={keys}",
                torch.equal(got, torch.cat(single[:size])),
            )
    for rows in (shapes.query_rows(group), shapes.query_rows(16 * group), slabs.rows):
        query = slabs.query[:, :, :rows]
        apart = [slabs.attend(query, SLAB_TOKENS, None, at) for at in range(_BATCHES[2])]
        for size in _BATCHES[:3]:
            got = slabs.attend(query.expand(size, -1, -1, -1), SLAB_TOKENS, None)
            yield (
                f"attention of {size} slabs rows={rows}",
                torch.equal(got, torch.cat(apart[:size])),
            )


def _merges_agree(model: Model) -> Iterator[tuple[str, bool]]:
    """Compare merges of a few rows with the merge of all, in float32, some slabs absent."""
    config = model.config
    shape = (max(_MERGED), config.kv_heads, CHUNK_TOKENS * config.group)
    lse = synthetic(shape, 95, 8.0)
    parts = synthetic((*shape, config.head_width), 94, 2.0)

    def merged(slabs: int, at: int, rows: int, absent: int = 0) -> torch.Tensor:
        buffers = attention.Rows.make(config, model.shapes, rows, parts)
        merge = attention.Merge.make(config, rows, slabs + absent, buffers)
        call = Call(0, 0, 0, rows, SLAB_TOKENS, size=slabs, index_step=1)
        result, its_lse = merge.views(call)
        cut = slice(at * config.group, (at + rows) * config.group)
        result.copy_(parts[:slabs, :, cut])
        its_lse.copy_(lse[:slabs, :, cut])
        attention.merge_parts(merge)
        return buffers.context

    for slabs in _MERGED:
        whole = merged(slabs, 0, CHUNK_TOKENS)
        for turn, rows in enumerate(model.shapes.row_buckets[:-1]):
            same = all(
                torch.equal(merged(slabs, at, rows, absent=turn % 4), whole[at : at + rows])
                for at in _cuts(rows, CHUNK_TOKENS, turn)
            )
            yield f"merge of {slabs} slabs rows={rows}", same
