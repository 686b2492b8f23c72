"""The closed set of shapes the engine may run (spec/07-host, "bit-exact").

A kernel's result for one row may depend on the number of rows, or keys, of the call. So
each step is padded to a shape of this set, for which the self-test at start has shown that
no row depends on the others. The set is part of the namespace. Pure.
"""

from dataclasses import dataclass, replace
from typing import Literal

from model_host.engine_api import CHUNK_TOKENS

# Padding to the next bucket adds at most a third; each bucket adds self-test time.
ROW_BUCKETS = (1, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, CHUNK_TOKENS)
KEY_BLOCK = 512
CONTEXT_TOKENS_DEFAULT = 8192
CONTEXT_TOKENS_MIN = 2
"""One token to read and one to write."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """One closed set: the padding of rows and keys, and the linear kernel.

    `packed` is oneDNN with weights reordered at load; `plain` is F.linear. Weights of four
    bits have their own kernel in either set (model_host/engine/linear.py).
    """

    linear: Literal["packed", "plain"]
    linear_rows_min: int
    query_multiple: int
    keys_max: int
    row_buckets: tuple[int, ...] = ROW_BUCKETS
    key_block: int = KEY_BLOCK

    def bucket(self, rows: int) -> int:
        """Return the smallest row bucket that holds `rows`, 1 to CHUNK_TOKENS."""
        return next(bucket for bucket in self.row_buckets if bucket >= rows)

    def linear_rows(self, rows: int) -> int:
        """Return the padded number of rows of a linear layer for `rows` real ones."""
        return max(self.bucket(rows), self.linear_rows_min)

    def query_rows(self, rows: int, group: int) -> int:
        """Return the padded number of query rows of attention, `group` heads folded per row."""
        return -(-self.bucket(rows) * group // self.query_multiple) * self.query_multiple

    def keys(self, tokens: int) -> int:
        """Return the key bucket that holds `tokens` keys."""
        return -(-tokens // self.key_block) * self.key_block

    @property
    def key_buckets(self) -> tuple[int, ...]:
        """All key buckets, ascending."""
        return tuple(range(self.key_block, self.keys(self.keys_max) + 1, self.key_block))

    def describe(self) -> dict[str, object]:
        """Return the properties that the namespace digests: all but the context's length.

        A longer context adds key buckets and changes no bit of a shorter one.
        """
        return {
            "attention": "sdpa, additive mask, heads folded into rows (row, head)",
            "key_block": self.key_block,
            "linear": self.linear,
            "linear_rows_min": self.linear_rows_min,
            "query_multiple": self.query_multiple,
            "row_buckets": list(self.row_buckets),
        }


# Measured on AVX-512 with bf16: packed linear layers agree for 2 rows and more in bf16 and
# fp32, attention for folded rows in multiples of 4. The engine uses FAST if it passes.
FAST = Shapes("packed", linear_rows_min=2, query_multiple=4, keys_max=CONTEXT_TOKENS_DEFAULT)
SAFE = Shapes("plain", linear_rows_min=16, query_multiple=16, keys_max=CONTEXT_TOKENS_DEFAULT)


# The kernel for four bits has one code path for all numbers of rows.
FAST_Q4 = replace(FAST, linear_rows_min=1)


def candidates(keys_max: int, numerics: str) -> tuple[Shapes, ...]:
    """Return the sets to try, fastest first, for a context of `keys_max` tokens."""
    fast = FAST_Q4 if numerics == "q4" else FAST
    return tuple(replace(shapes, keys_max=keys_max) for shapes in (fast, SAFE))
