"""Which attention calls a step makes (spec/07-host §5). Pure.

Keys and values lie in slabs of 512 positions, numbered in one memory. The rows of a slice
that lie in one slab are a *run*: they see all earlier slabs in full, and their own slab up
to themselves. So each run needs one partial result per slab. Partial results are computed
by as few calls as the places of slabs and rows allow: a call takes equally spaced slabs,
with equally spaced rows for each.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from model_host.engine.shapes import Shapes
from model_host.kv import SLAB_TOKENS, PageTable

_CALL_KEYS = 128
"""Keys of one row that take about as long as one more call."""
_SPLIT_KEYS = 4096
"""Masked pairs of rows and keys that take about as long as one more call."""


@dataclass(frozen=True, slots=True)
class Run:
    """New rows of one sequence that lie in one slab.

    row: the first row in the step. slabs: those of the sequence up to the run's own, which
    is the last. offset: the first row's place in its slab.
    """

    row: int
    count: int
    slabs: tuple[int, ...]
    offset: int

    @property
    def slab(self) -> int:
        """The slab in which the rows lie."""
        return self.slabs[-1]

    @property
    def earlier(self) -> Sequence[int]:
        """The slabs before that one, all full."""
        return self.slabs[:-1]


@dataclass(frozen=True, slots=True)
class Call:
    """One attention call of `size` slabs, each with `count` rows over its first `keys` keys.

    index: the place of the partial result among those of a row: 0 for the row's own slab,
    then all earlier slabs in order. The three steps are what row, slab and index advance by
    from one slab to the next. Row r of part i sees the keys up to offsets[i] + r; without
    offsets every row sees all keys.
    """

    row: int
    slab: int
    index: int
    count: int
    keys: int
    offsets: tuple[int, ...] | None = None
    size: int = 1
    row_step: int = 0
    slab_step: int = 0
    index_step: int = 0

    def joined(self, other: "Call") -> "Call | None":
        """Return this call with another's single slab after its own; None if out of step."""
        rows, slabs = other.row - self.row, other.slab - self.slab
        indices = other.index - self.index
        if self.size == 1:
            steps = rows, slabs, indices
        else:
            steps = self.row_step, self.slab_step, self.index_step
            if (rows, slabs, indices) != tuple(self.size * step for step in steps):
                return None
        if min(steps) < 0:  # a tensor has no negative steps
            return None
        if self.count != other.count or (self.offsets is None) != (other.offsets is None):
            return None
        offsets = None if self.offsets is None else (*self.offsets, *(other.offsets or ()))
        return Call(
            row=self.row,
            slab=self.slab,
            index=self.index,
            count=self.count,
            keys=max(self.keys, other.keys),
            offsets=offsets,
            size=self.size + 1,
            row_step=steps[0],
            slab_step=steps[1],
            index_step=steps[2],
        )


def runs_of(pages: PageTable, row: int, count: int) -> Iterator[Run]:
    """Divide the new rows of a sequence at the borders of slabs."""
    start, slabs = pages.tokens, pages.slabs
    at = start
    while at < start + count:
        index, offset = divmod(at, SLAB_TOKENS)
        size = min(SLAB_TOKENS - offset, start + count - at)
        yield Run(row + at - start, size, tuple(slabs[: index + 1]), offset)
        at += size


def plan_calls(runs: Sequence[Run], shapes: Shapes) -> list[Call]:
    """Return the calls that give each run a partial result for each of its slabs."""
    calls = _own_slabs(runs, shapes)
    if any(run.earlier for run in runs):
        calls += _earlier_slabs(runs)
    return calls


def _own_slabs(runs: Sequence[Run], shapes: Shapes) -> list[Call]:
    """Return the calls of rows over their own slab, each cut at the last key it needs."""
    calls: list[Call] = []
    for run in runs:
        for part in _pieces(run, shapes):
            both = calls[-1].joined(part) if calls else None
            if both is not None and _work(both) <= _work(calls[-1]) + _work(part):
                calls[-1] = both
            else:
                calls.append(part)
    return [
        replace(call, offsets=None) if call.offsets == (call.keys - 1,) * call.size else call
        for call in calls
    ]


def _work(call: Call) -> int:
    """Return the cost of a call, in keys of one row."""
    return _CALL_KEYS + call.size * call.count * call.keys


def _pieces(run: Run, shapes: Shapes) -> Iterator[Call]:
    """Divide a run where fewer keys for its first rows are worth one more call."""
    at, end = run.offset, run.offset + run.count
    last = shapes.key_cut(end)
    for cut in shapes.key_cuts:
        rows = min(cut, end) - at
        if cut == last or rows * (last - cut) >= _SPLIT_KEYS:
            yield Call(run.row + at - run.offset, run.slab, 0, rows, cut, (at,))
            at += rows
        if at == end:
            return


def _earlier_slabs(runs: Sequence[Run]) -> list[Call]:
    """Return the calls over full slabs: one for the rows of neighbours that share a slab."""
    chains: list[Call] = []
    open_chains: dict[tuple[int, int], int] = {}
    for index in range(max(len(run.earlier) for run in runs)):
        for part in _shared(runs, index):
            at = open_chains.get((part.row, part.count))
            longer = None if at is None else chains[at].joined(part)
            if at is not None and longer is not None:
                chains[at] = longer
            else:
                open_chains[part.row, part.count] = len(chains)
                chains.append(part)
    return _side_by_side(chains)


def _shared(runs: Sequence[Run], index: int) -> Iterable[Call]:
    """Return one part per slab at an index, with the rows of all neighbours that see it."""
    parts: list[Call] = []
    for run in runs:
        if index >= len(run.earlier):
            continue
        slab = run.earlier[index]
        if parts and parts[-1].slab == slab and parts[-1].row + parts[-1].count == run.row:
            parts[-1] = replace(parts[-1], count=parts[-1].count + run.count)
        else:
            parts.append(Call(run.row, slab, index + 1, run.count, SLAB_TOKENS))
    return parts


def _side_by_side(chains: Sequence[Call]) -> list[Call]:
    """Join calls of one slab each whose rows and slabs are equally spaced."""
    calls: list[Call] = []
    for chain in sorted(chains, key=lambda chain: (chain.size > 1, chain.index, chain.row)):
        both = calls[-1].joined(chain) if calls and chain.size == 1 else None
        if both is not None and both.index_step == 0:
            calls[-1] = both
        else:
            calls.append(chain)
    return calls
