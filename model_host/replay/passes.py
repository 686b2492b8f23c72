"""The passes of a replay: every token of a tree of contexts, computed once (spec/07-host §10).

Pure. The contexts of a conversation share prefixes, so they are a tree of tokens. Sorted, each
shares with those before it what it shares with the last one: that part is computed already.

    context of answer 1    a b c d e              pass 0   a b c d e f g h
    context of answer 2    a b c d e f g h                         | |     logits: answers 1, 2
    another branch         a b c x y              pass 1         x y       begins at 3
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from model_host.engine_api import CHUNK_TOKENS
from model_host.kv import common_tokens

LOGITS_BYTES_MAX = 128 * 1024 * 1024
"""Memory of the logits of one step."""


@dataclass(frozen=True, slots=True)
class Span:
    """The context of one answer, without its last token, which chooses nothing.

    The logits of the rows from `first` on choose its tokens, one each.
    """

    ids: tuple[int, ...]
    first: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """The use of one row of logits: the token at an output index of a span."""

    span: int
    index: int


@dataclass(slots=True)
class Pass:
    """One context of the tree; positions before `start` were computed by an earlier pass."""

    ids: tuple[int, ...]
    start: int
    wanted: dict[int, list[Wanted]] = field(default_factory=dict)
    """By row, ascending: what its logits are for."""
    spans: list[int] = field(default_factory=list)
    """The spans whose ends this pass computes."""

    def chunk(self, at: int, rows_max: int, logits_max: int) -> tuple[int, list[int]]:
        """Return the end of the next chunk from `at`, and its rows whose logits are wanted."""
        stop = min(len(self.ids), at + min(rows_max, CHUNK_TOKENS))
        rows = [row for row in range(at, stop) if row in self.wanted]
        if len(rows) > logits_max:
            stop = rows[logits_max]
        return stop, rows[:logits_max]


def logits_max(vocabulary: int) -> int:
    """Return the most rows of logits of one step."""
    return max(LOGITS_BYTES_MAX // (4 * vocabulary), 1)


def passes_of(spans: Sequence[Span]) -> list[Pass]:
    """Arrange spans as passes in which no row is computed twice, nor wanted in two."""
    made: list[Pass] = []
    path: list[Pass] = []  # the passes on the way to the last one, by where they begin
    for number in sorted(range(len(spans)), key=lambda i: spans[i].ids):
        span = spans[number]
        shared = common_tokens(path[-1].ids, span.ids) if path else 0
        if path and shared == len(path[-1].ids):
            path[-1].ids = span.ids  # it goes on where the last one ends
        else:
            while path and path[-1].start >= shared:
                path.pop()
            path.append(Pass(span.ids, shared))
            made.append(path[-1])
        path[-1].spans.append(number)
        starts = [one.start for one in path]
        for row in range(span.first, len(span.ids)):
            computed_by = path[bisect_right(starts, row) - 1]
            uses = computed_by.wanted.setdefault(row, [])
            uses.append(Wanted(number, row - span.first))
    for one in made:
        one.wanted = dict(sorted(one.wanted.items()))
    return made
