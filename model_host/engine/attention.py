"""Attention of one step over the slabs of its sequences (spec/07-host §5).

A call gives partial results over one slab; those of a row are merged in a fixed order, by the
logarithm of the sum of exponentials (lse), in float32 and element by element: torch's sums
over slabs depend on the number of rows.

    w[i] = exp(lse[i] - max lse)        result = sum(w[i] * part[i]) / sum(w[i])

A row with fewer slabs than others has lse of minus infinity, and so weight 0, for the rest.
Views of the step's buffers and of the memory are made once and used for every layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from model_host.engine.attention_plan import Call, Run, plan_calls
from model_host.engine.kernels import ATTENTION
from model_host.engine.shapes import QUERY_STEP_MAX, Shapes
from model_host.engine.slab_memory import TorchSlabMemory
from model_host.model_config import ModelConfig

_SCATTER_RUNS = 4  # from so many runs on, one scatter is faster than a copy per run


@dataclass(frozen=True, slots=True)
class Rows:
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


@dataclass(slots=True)
class _Bound:
    """A call with its views; keys_values has keys and values of each layer in turn."""

    query: torch.Tensor  # [B, H_kv, R, D]
    mask: torch.Tensor | None
    keys_values: Sequence[torch.Tensor]  # [B, H_kv, K, D] each
    folded: int  # real rows of R
    shape: tuple[int, ...] | None  # of the result as it is copied, if it is not as computed
    result: torch.Tensor  # where the result goes: to the merge, or the context
    lse: torch.Tensor | None  # where lse goes: to the merge, or nowhere


class Attention:
    """The attention of one step: `write`, then `run`, for each layer in turn."""

    def __init__(
        self,
        config: ModelConfig,
        shapes: Shapes,
        masks: torch.Tensor,
        memory: TorchSlabMemory,
        runs: Sequence[Run],
        rows: Rows,
    ) -> None:
        """Plan the calls for runs in the order of their rows, and make all views."""
        self._config, self._shapes, self._rows, self._pool = config, shapes, rows, memory.pool
        self._kernel = ATTENTION[memory.pool.device.type]
        self._real = runs[-1].row + runs[-1].count
        calls = plan_calls(runs, shapes)
        self._fold(calls)
        slabs = max(len(run.slabs) for run in runs)
        self._merge = Merge(config, self._real, slabs, rows) if slabs > 1 else None
        self._calls = [self._bind(call, masks) for call in calls]
        self._targets = _targets(config, memory.pool, runs, rows)

    def _fold(self, calls: Sequence[Call]) -> None:
        """Make the buffer of folded queries, [H_kv, R, D], if a call has more than one row."""
        config = self._config
        self._folded: torch.Tensor | None = None
        if all(call.count == 1 for call in calls):
            return
        size = (config.kv_heads, self._real * config.group + QUERY_STEP_MAX, config.head_width)
        self._folded = self._rows.heads.new_zeros(size)
        real = self._folded[:, : self._real * config.group]
        self._into = real.view(config.kv_heads, self._real, config.group, config.head_width)
        queries = self._rows.heads[: self._real, : config.heads]
        apart = queries.view(self._real, config.kv_heads, config.group, config.head_width)
        self._from = apart.transpose(0, 1)

    def _query(self, call: Call, rows: int) -> torch.Tensor:
        """Return the view of a call's queries, [B, H_kv, R, D]."""
        config, source = self._config, self._folded
        width = config.head_width
        if source is None or call.count == 1:
            source = self._rows.heads
            row, head = source.stride(0), config.group * width
            start, place = row, width
        else:
            start, head, place = config.group * width, source.stride(0), width
        return source.as_strided(
            (call.size, config.kv_heads, rows, width),
            (call.row_step * start, head, place, 1),
            call.row * start,
        )

    def _bind(self, call: Call, masks: torch.Tensor) -> _Bound:
        """Make the views of a call."""
        config, folded = self._config, call.count * self._config.group
        rows = self._shapes.query_rows(folded)
        shape, lse = None, None
        if self._merge is not None:
            result, lse = self._merge.views(call)
        else:
            result = self._in_context(call)
            shape = tuple(result.shape) if call.count > 1 else None
        return _Bound(
            query=self._query(call, rows),
            mask=_mask(call, masks, rows, config.group),
            keys_values=_keys_values(self._pool, call),
            folded=folded,
            shape=shape,
            result=result,
            lse=lse,
        )

    def _in_context(self, call: Call) -> torch.Tensor:
        """Return where a call's rows are in the context: [B, H_kv, (count,) group, D]."""
        config = self._config
        width, row = config.head_width, config.heads * config.head_width
        size = [call.size, config.kv_heads, call.count, config.group, width]
        step = [call.row_step * row, config.group * width, row, width, 1]
        if call.count == 1:
            del size[2], step[2]
        return self._rows.context.as_strided(size, step, call.row * row)

    def write(self, layer: int) -> None:
        """Write the keys and values of the rows into the memory."""
        self._targets.write(layer)

    def run(self, layer: int) -> None:
        """Attend with all rows, and write the result to their context."""
        if self._folded is not None:
            self._into.copy_(self._from)
        for call in self._calls:
            result, lse = self._kernel(
                call.query, call.keys_values[2 * layer], call.keys_values[2 * layer + 1], call.mask
            )
            result = result.narrow(2, 0, call.folded)
            if call.lse is not None:
                call.lse.copy_(lse.narrow(2, 0, call.folded))
            elif call.shape is not None:
                result = result.view(call.shape)
            call.result.copy_(result)
        if self._merge is not None:
            self._merge.run()


class Merge:
    """The partial results of all rows, [S, M, group, H_kv, D], and their merge."""

    def __init__(self, config: ModelConfig, rows: int, slabs: int, buffers: Rows) -> None:
        """Make buffers for a number of real rows and slabs. Absent results are zero."""
        kv_heads, group, width = config.kv_heads, config.group, config.head_width
        heads = buffers.heads
        shape = (slabs, rows, group, kv_heads)
        self._lse = heads.new_full(shape, float("-inf"), dtype=torch.float32)
        # The weights are the last column, so that they are added up with the results.
        self._parts = heads.new_zeros((*shape, width + 1), dtype=torch.float32)
        self._results, self._weights = self._parts[..., :width], self._parts[..., width:]
        self._difference = torch.empty_like(self._lse)
        self._exponentials = self._difference[..., None]
        self._halves = []
        while slabs > 1:
            half = 1 << (slabs - 1).bit_length() - 1
            self._halves.append((self._parts[: slabs - half], self._parts[half:slabs]))
            slabs = half
        self._sum, self._weight = self._results[0], self._weights[0]
        context = buffers.context[:rows].view(rows, kv_heads, group, width)
        self._context = context.transpose(1, 2)

    def views(self, call: Call) -> tuple[torch.Tensor, torch.Tensor]:
        """Return where a call's results and lse go, [B, H_kv, folded, D] and [B, H_kv, folded]."""
        slab, row, head, kv_head = self._lse.stride()
        width = self._parts.stride(-2)
        size = (call.size, self._lse.shape[3], call.count * self._lse.shape[2])
        steps = (call.index_step * slab + call.row_step * row, kv_head, head)
        start = call.index * slab + call.row * row
        return (
            self._parts.as_strided(
                (*size, width - 1), (*(width * step for step in steps), 1), start * width
            ),
            self._lse.as_strided(size, steps, start),
        )

    def run(self) -> None:
        """Merge the partial results of all rows, and write them to the context.

        They are added up in a fixed order: place i to place i - h, h the largest power of 2
        below their number, until one is left. Absent ones add exact zeros, so the order is
        the same with and without them.
        """
        torch.sub(self._lse, self._lse.amax(0), out=self._difference)
        self._weights.copy_(self._exponentials.exp_())
        self._results.mul_(self._weights)
        for target, source in self._halves:
            target.add_(source)
        self._context.copy_(self._sum.div_(self._weight))


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


def _keys_values(pool: torch.Tensor, call: Call) -> tuple[torch.Tensor, ...]:
    """Return the views of a call's keys and values, layer by layer, [B, H_kv, K, D] each."""
    _, layers, kinds, heads, _, width = pool.shape
    slab, _, kind, head, place, one = pool.stride()
    return pool.as_strided(
        (layers * kinds, call.size, heads, call.keys, width),
        (kind, call.slab_step * slab, head, place, one),
        call.slab * slab,
    ).unbind(0)


class _Copies:
    """Writes the keys and values of a few runs, one copy per run."""

    def __init__(self, runs: Sequence[Run], pool: torch.Tensor, fresh: torch.Tensor) -> None:
        _, layers, kinds, heads, _, width = pool.shape
        slab, layer, _, head, place, one = pool.stride()
        self._runs = [
            (
                fresh[run.row : run.row + run.count],
                pool.as_strided(
                    (layers, run.count, kinds * heads, width),
                    (layer, place, head, one),
                    run.slab * slab + run.offset * place,
                ).unbind(0),
            )
            for run in runs
        ]

    def write(self, layer: int) -> None:
        for rows, targets in self._runs:
            targets[layer].copy_(rows)


class _Scatter:
    """Writes the keys and values of many runs at once, by the index of each head's row."""

    def __init__(self, runs: Sequence[Run], pool: torch.Tensor, fresh: torch.Tensor) -> None:
        slab, layer, _, head, place, _ = (stride // pool.stride(4) for stride in pool.stride())
        starts = [
            run.slab * slab + (run.offset + row) * place for run in runs for row in range(run.count)
        ]
        heads = torch.arange(fresh.shape[1]) * head
        first = (torch.tensor(starts)[:, None] + heads).flatten()
        layers = torch.arange(pool.shape[1])[:, None] * layer
        self._index = (first + layers).to(pool.device).unbind(0)
        self._fresh, self._pool = fresh, pool.view(-1, pool.shape[-1])

    def write(self, layer: int) -> None:
        self._pool.index_copy_(0, self._index[layer], self._fresh.flatten(0, 1))


def _targets(
    config: ModelConfig, pool: torch.Tensor, runs: Sequence[Run], rows: Rows
) -> _Copies | _Scatter:
    """Return the way to write the keys and values of the runs' rows."""
    fresh = rows.heads[: runs[-1].row + runs[-1].count, config.heads :]
    kind = _Copies if len(runs) < _SCATTER_RUNS else _Scatter
    return kind(runs, pool, fresh)
