"""Attention of one step over the slabs of its sequences (spec/07-host §5).

A call gives partial results over one slab; those of a row are merged in a fixed order, by the
logarithm of the sum of exponentials (lse), in float32 and element by element: torch's sums
over slabs depend on the number of rows.

    w[i] = exp(lse[i] - max lse)        result = sum(w[i] * part[i]) / sum(w[i])

A row with fewer slabs than others has lse of minus infinity, and so weight 0, for the rest.
Views of the step's buffers and of the memory are made once and used for every layer, by
functions that are compiled as parts of the step (model_host/engine/step.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from model_host.engine.attention_plan import Call, Run, plan_calls
from model_host.engine.kernels import attend
from model_host.engine.shapes import QUERY_STEP_MAX, Shapes
from model_host.engine.slab_memory import TorchSlabMemory
from model_host.model_config import ModelConfig

_SCATTER_RUNS = 4  # from so many runs on, one scatter is faster than a copy per run


class Rows(NamedTuple):
    """The buffers of a step's rows.

    heads: [M, H + 2 H_kv, D], rotated queries and keys, and values; more zeros follow in
    its storage, since a call pads its queries with those that follow. context: [M, H D], the
    result, zero where no row is real.
    """

    heads: torch.Tensor
    context: torch.Tensor

    @classmethod
    def make(cls, config: ModelConfig, shapes: Shapes, rows: int, like: torch.Tensor) -> "Rows":
        """Return zeros for `rows` rows, padding included, of the dtype and device of `like`."""
        kinds = config.heads + 2 * config.kv_heads
        more = 1 + shapes.query_rows(config.group) // kinds
        return cls(
            like.new_zeros((rows + more, kinds, config.head_width))[:rows],
            like.new_zeros((rows, config.heads * config.head_width)),
        )


class _Bound(NamedTuple):
    """A call with its views; keys_values has keys and values of each layer in turn.

    Views of all layers are one tensor, since torch takes one out sooner than Python makes it.
    """

    query: torch.Tensor  # [B, H_kv, R, D]
    mask: torch.Tensor | None
    keys_values: torch.Tensor  # [2 L, B, H_kv, K, D]
    folded: int  # real rows of R
    shape: list[int] | None  # of the result as it is copied, if it is not as computed
    result: torch.Tensor  # where the result goes: to the merge, or the context
    lse: torch.Tensor | None  # where lse goes: to the merge, or nowhere


class _Fold(NamedTuple):
    """The queries of calls with more than one row, folded by key-value head."""

    buffer: torch.Tensor  # [H_kv, R, D]
    into: torch.Tensor
    source: torch.Tensor

    @classmethod
    def make(cls, config: ModelConfig, real: int, rows: Rows) -> "_Fold":
        """Return the buffer for a number of real rows."""
        size = (config.kv_heads, real * config.group + QUERY_STEP_MAX, config.head_width)
        buffer = rows.heads.new_zeros(size)
        into = buffer[:, : real * config.group]
        queries = rows.heads[:real, : config.heads]
        apart = queries.view(real, config.kv_heads, config.group, config.head_width)
        return cls(
            buffer,
            into.view(config.kv_heads, real, config.group, config.head_width),
            apart.transpose(0, 1),
        )


class Merge(NamedTuple):
    """The partial results of all rows, [S, M, group, H_kv, D], and their merge.

    The weights are the last column of `parts`, so that they are added up with the results.
    """

    lse: torch.Tensor
    parts: torch.Tensor
    results: torch.Tensor
    weights: torch.Tensor
    difference: torch.Tensor
    exponentials: torch.Tensor
    halves: list[tuple[torch.Tensor, torch.Tensor]]
    context: torch.Tensor

    @classmethod
    def make(cls, config: ModelConfig, rows: int, slabs: int, buffers: Rows) -> "Merge":
        """Return buffers for a number of real rows and slabs. Absent results are zero."""
        kv_heads, group, width = config.kv_heads, config.group, config.head_width
        shape = (slabs, rows, group, kv_heads)
        lse = buffers.heads.new_full(shape, float("-inf"), dtype=torch.float32)
        parts = buffers.heads.new_zeros((*shape, width + 1), dtype=torch.float32)
        difference = torch.empty_like(lse)
        halves = []
        while slabs > 1:
            half = 1 << (slabs - 1).bit_length() - 1
            halves.append((parts[: slabs - half], parts[half:slabs]))
            slabs = half
        return cls(
            lse=lse,
            parts=parts,
            results=parts[..., :width],
            weights=parts[..., width:],
            difference=difference,
            exponentials=difference[..., None],
            halves=halves,
            context=buffers.context[:rows].view(rows, kv_heads, group, width).transpose(1, 2),
        )

    def views(self, call: Call) -> tuple[torch.Tensor, torch.Tensor]:
        """Return where a call's results and lse go, [B, H_kv, folded, D] and [B, H_kv, folded]."""
        slab, row, head, kv_head = self.lse.stride()
        width = self.parts.stride(-2)
        size = (call.size, self.lse.shape[3], call.count * self.lse.shape[2])
        steps = (call.index_step * slab + call.row_step * row, kv_head, head)
        start = call.index * slab + call.row * row
        return (
            self.parts.as_strided(
                (*size, width - 1), (*(width * step for step in steps), 1), start * width
            ),
            self.lse.as_strided(size, steps, start),
        )


def merge_parts(merge: Merge) -> None:
    """Merge the partial results of all rows, and write them to the context.

    They are added up in a fixed order: place i to place i - h, h the largest power of 2
    below their number, until one is left. Absent ones add exact zeros, so the order is
    the same with and without them.
    """
    torch.sub(merge.lse, merge.lse.amax(0), out=merge.difference)
    merge.weights.copy_(merge.exponentials.exp_())
    merge.results.mul_(merge.weights)
    for target, source in merge.halves:
        target.add_(source)
    merge.context.copy_(merge.results[0].div_(merge.weights[0]))


class _Copy(NamedTuple):
    """The keys and values of a run, and where they go in each layer."""

    rows: torch.Tensor
    targets: torch.Tensor  # [L, M, 2 H_kv, D]


class _Scatter(NamedTuple):
    """The keys and values of many runs, and the place of each head's row in each layer."""

    rows: torch.Tensor
    places: torch.Tensor  # [L, 2 H_kv M]
    pool: torch.Tensor


class Attention(NamedTuple):
    """The attention of one step: `write_rows`, then `attend_rows`, for each layer in turn."""

    fold: _Fold | None
    calls: list[_Bound]
    merge: Merge | None
    copies: list[_Copy]
    scatter: _Scatter | None


def plan_attention(
    config: ModelConfig,
    shapes: Shapes,
    masks: torch.Tensor,
    memory: TorchSlabMemory,
    runs: Sequence[Run],
    rows: Rows,
) -> Attention:
    """Plan the calls for runs in the order of their rows, and make all views."""
    real = runs[-1].row + runs[-1].count
    calls = plan_calls(runs, shapes)
    slabs = max(len(run.slabs) for run in runs)
    is_folded = any(call.count > 1 for call in calls)
    fold = _Fold.make(config, real, rows) if is_folded else None
    merge = Merge.make(config, real, slabs, rows) if slabs > 1 else None
    bound = []
    for call in calls:
        folded = call.count * config.group
        padded = shapes.query_rows(folded)
        if merge is not None:
            result, lse = merge.views(call)
            shape = None
        else:
            result, lse = _in_context(config, call, rows.context), None
            shape = list(result.shape) if call.count > 1 else None
        bound.append(
            _Bound(
                query=_query(config, call, padded, rows.heads, fold),
                mask=_mask(call, masks, padded, config.group),
                keys_values=_keys_values(memory.pool, call),
                folded=folded,
                shape=shape,
                result=result,
                lse=lse,
            )
        )
    fresh = rows.heads[:real, config.heads :]
    if len(runs) < _SCATTER_RUNS:
        return Attention(fold, bound, merge, _copies(runs, memory.pool, fresh), None)
    return Attention(fold, bound, merge, [], _scatter(runs, memory.pool, fresh))


def write_rows(attention: Attention, layer: int) -> None:
    """Write the keys and values of the rows into the memory."""
    for copy in attention.copies:
        copy.targets[layer].copy_(copy.rows)
    scatter = attention.scatter
    if scatter is not None:
        scatter.pool.index_copy_(0, scatter.places[layer], scatter.rows.flatten(0, 1))


def attend_rows(attention: Attention, layer: int) -> None:
    """Attend with all rows, and write the result to their context."""
    fold, merge = attention.fold, attention.merge
    if fold is not None:
        fold.into.copy_(fold.source)
    for call in attention.calls:
        keys, values = call.keys_values[2 * layer], call.keys_values[2 * layer + 1]
        result, lse = attend(call.query, keys, values, call.mask)
        result = result.narrow(2, 0, call.folded)
        lse_target, shape = call.lse, call.shape
        if lse_target is not None:
            lse_target.copy_(lse.narrow(2, 0, call.folded))
        elif shape is not None:
            result = result.view(shape)
        call.result.copy_(result)
    if merge is not None:
        merge_parts(merge)


def _query(
    config: ModelConfig, call: Call, rows: int, heads: torch.Tensor, fold: _Fold | None
) -> torch.Tensor:
    """Return the view of a call's queries, [B, H_kv, R, D]."""
    width = config.head_width
    if fold is None or call.count == 1:
        source, start, head, place = heads, heads.stride(0), config.group * width, width
    else:
        source, start, place = fold.buffer, config.group * width, width
        head = source.stride(0)
    return source.as_strided(
        (call.size, config.kv_heads, rows, width),
        (call.row_step * start, head, place, 1),
        call.row * start,
    )


def _in_context(config: ModelConfig, call: Call, context: torch.Tensor) -> torch.Tensor:
    """Return where a call's rows are in the context: [B, H_kv, (count,) group, D]."""
    width, row = config.head_width, config.heads * config.head_width
    size = [call.size, config.kv_heads, call.count, config.group, width]
    step = [call.row_step * row, config.group * width, row, width, 1]
    if call.count == 1:
        del size[2], step[2]
    return context.as_strided(size, step, call.row * row)


def _mask(call: Call, masks: torch.Tensor, rows: int, group: int) -> torch.Tensor | None:
    """Return the mask of a call, [B or 1, 1, R or 1, K]."""
    if call.offsets is None:
        return None
    if len(call.offsets) == 1:
        size = 1 if call.count == 1 else rows
        return masks[call.offsets[0] * group :][None, None, :size, : call.keys]
    places = torch.tensor(call.offsets, device=masks.device)[:, None] * group
    if call.count > 1:
        places = places + torch.arange(rows, device=masks.device)
    return masks[:, : call.keys][places][:, None]


def _keys_values(pool: torch.Tensor, call: Call) -> torch.Tensor:
    """Return the view of a call's keys and values, layer by layer, [2 L, B, H_kv, K, D]."""
    _, layers, kinds, heads, _, width = pool.shape
    slab, _, kind, head, place, one = pool.stride()
    return pool.as_strided(
        (layers * kinds, call.size, heads, call.keys, width),
        (kind, call.slab_step * slab, head, place, one),
        call.slab * slab,
    )


def _copies(runs: Sequence[Run], pool: torch.Tensor, fresh: torch.Tensor) -> list[_Copy]:
    _, layers, kinds, heads, _, width = pool.shape
    slab, layer, _, head, place, one = pool.stride()
    return [
        _Copy(
            fresh[run.row : run.row + run.count],
            pool.as_strided(
                (layers, run.count, kinds * heads, width),
                (layer, place, head, one),
                run.slab * slab + run.offset * place,
            ),
        )
        for run in runs
    ]


def _scatter(runs: Sequence[Run], pool: torch.Tensor, fresh: torch.Tensor) -> _Scatter:
    slab, layer, _, head, place, _ = (stride // pool.stride(4) for stride in pool.stride())
    starts = [
        run.slab * slab + (run.offset + row) * place for run in runs for row in range(run.count)
    ]
    heads = torch.arange(fresh.shape[1]) * head
    first = (torch.tensor(starts)[:, None] + heads).flatten()
    layers = torch.arange(pool.shape[1])[:, None] * layer
    return _Scatter(fresh, (first + layers).to(pool.device), pool.view(-1, pool.shape[-1]))
