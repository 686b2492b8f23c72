"""The closed set of shapes the engine may run (spec/07-host, "bit-exact").

A kernel's result for one row may depend on the number of rows, or keys, of the call. So
each call is padded to a shape of this set, for which the self-test at start has shown that
no row depends on the others. The set is part of the namespace. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from model_host.engine_api import CHUNK_TOKENS
from model_host.kv import SLAB_TOKENS

# Up to 32 rows a linear layer reads all weights for little work, and attention pays for each
# row: fine steps shorten the first token of a short turn. Above, padding adds a third at most.
ROW_BUCKETS = (1, 2, *range(4, 33, 4), 48, 64, 96, 128, 192, 256, 320, 384, 448, CHUNK_TOKENS)
HEAD_ROWS_MAX = 128
"""Most rows of one call of the head, whose logits are by far the largest result."""
QUERY_STEP_MAX = 64
"""The coarsest step of the query rows of attention."""
CONTEXT_TOKENS_DEFAULT = 8192


@dataclass(frozen=True, slots=True)
class Shapes:
    """One closed set: the padding of rows and keys, and the linear kernel.

    `packed` is oneDNN with weights reordered at load, `half` is FBGEMM with weights in
    float16, and `plain` is F.linear. Weights of four bits have their own kernel in each set
    (model_host/engine/linear.py). The query heads
    of a key-value head are folded into rows, padded to `query_multiple`; above 96 and 192
    rows in coarser steps. `key_cuts` are the numbers of keys of a slab that a call may take.
    """

    linear: Literal["packed", "half", "plain"]
    linear_rows_min: int
    query_multiple: int
    key_cuts: tuple[int, ...]
    keys_max: int
    row_buckets: tuple[int, ...] = ROW_BUCKETS

    def bucket(self, rows: int) -> int:
        """Return the smallest row bucket that holds `rows`, 1 to CHUNK_TOKENS."""
        return next(bucket for bucket in self.row_buckets if bucket >= rows)

    def linear_rows(self, rows: int) -> int:
        """Return the padded number of rows of a linear layer for `rows` real ones."""
        return max(self.bucket(rows), self.linear_rows_min)

    @property
    def linear_sizes(self) -> list[int]:
        """All numbers of rows of a linear layer, ascending."""
        return sorted({self.linear_rows(bucket) for bucket in self.row_buckets})

    def head_sizes(self, rows: int) -> Iterator[tuple[int, int]]:
        """Divide `rows` rows for the head; yield the real and padded rows of each call."""
        for at in range(0, rows, HEAD_ROWS_MAX):
            real = min(HEAD_ROWS_MAX, rows - at)
            yield real, self.linear_rows(real)

    def query_rows(self, folded: int) -> int:
        """Return the padded number of query rows of attention for `folded` real ones."""
        multiple = self.query_step(folded)
        return -(-folded // multiple) * multiple

    def query_step(self, folded: int) -> int:
        """Return the step of the padded number of query rows at `folded` rows."""
        if folded > 192:
            return QUERY_STEP_MAX
        return max(self.query_multiple, 16 if folded > 96 else 1)

    def query_sizes(self, group: int) -> list[int]:
        """All numbers of query rows of attention with `group` heads folded per row, ascending."""
        return sorted({self.query_rows(rows * group) for rows in range(1, CHUNK_TOKENS + 1)})

    def key_cut(self, tokens: int) -> int:
        """Return the smallest number of keys of a slab that holds its first `tokens`."""
        return next(cut for cut in self.key_cuts if cut >= tokens)

    def describe(self) -> dict[str, object]:
        """Return the properties that the namespace digests: all but the context's length.

        A longer context changes no bit of a shorter one.
        """
        return {
            "attention": "per slab, additive mask or none, heads folded into rows (row, head); "
            "merged by log-sum-exp in float32",
            "slab": SLAB_TOKENS,
            "key_cuts": list(self.key_cuts),
            "linear": self.linear,
            "linear_rows_min": self.linear_rows_min,
            "head_rows_max": HEAD_ROWS_MAX,
            "query_multiple": self.query_multiple,
            "row_buckets": list(self.row_buckets),
        }


# Measured on AVX-512 with bf16: packed linear layers agree for 2 rows and more in bf16 and
# fp32, and take least time for 4 to 6; attention agrees for folded rows in multiples of 4 and
# these numbers of keys (208 to 368 do not). On AVX2 the same holds of HALF. The engine uses
# the first that passes.
FAST = Shapes(
    "packed",
    linear_rows_min=4,
    query_multiple=4,
    key_cuts=(64, 128, 192, 384, SLAB_TOKENS),
    keys_max=CONTEXT_TOKENS_DEFAULT,
)
HALF = replace(FAST, linear="half", linear_rows_min=3)
SAFE = Shapes(
    "plain",
    linear_rows_min=16,
    query_multiple=16,
    key_cuts=(SLAB_TOKENS,),
    keys_max=CONTEXT_TOKENS_DEFAULT,
)


_Q4_ROWS_MIN = 1
"""The kernel for four bits has one code path for all numbers of rows."""


def candidates(keys_max: int, numerics: str) -> tuple[Shapes, ...]:
    """Return the sets to try, fastest first, for a context of `keys_max` tokens.

    A machine has the kernel of the first or of the second (DECISIONS D530).
    """
    fast = [FAST, HALF]
    if numerics == "q4":
        fast = [replace(shapes, linear_rows_min=_Q4_ROWS_MIN) for shapes in fast]
    return tuple(replace(shapes, keys_max=keys_max) for shapes in (*fast, SAFE))
