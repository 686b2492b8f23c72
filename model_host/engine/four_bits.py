"""Matrices of four-bit numbers, as GGUF files hold them (spec/07-host §7). No torch here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import Q4_K

GROUP = 32
"""Columns that share a scale and a zero."""

_Bytes = npt.NDArray[np.uint8]
_Floats = npt.NDArray[np.float32]
_Blocks = tuple[_Bytes, _Floats, _Floats]
"""Nibbles, scales and zeros of blocks; see FourBits."""


@dataclass(frozen=True, slots=True)
class FourBits:
    """A matrix [N, K] of numbers q from 0 to 15 that stand for (q - 8) * scale + zero.

    nibbles [N, K / 32, 16]: byte j has column j of the group in its low half, and column
    j + 16 in its high half. scales, zeros [N, K / 32].
    """

    nibbles: _Bytes
    scales: _Floats
    zeros: _Floats

    def map_rows(self, reorder: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Self:
        """Return the matrix with its rows reordered, arrays of any width alike."""
        return type(self)(reorder(self.nibbles), reorder(self.scales), reorder(self.zeros))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts below one another."""
        return cls(
            np.concatenate([part.nibbles for part in parts]),
            np.concatenate([part.scales for part in parts]),
            np.concatenate([part.zeros for part in parts]),
        )


def four_bits(data: _Bytes, kind: GGMLQuantizationType, shape: tuple[int, ...]) -> FourBits:
    """Return a matrix [N, K] of one of FOUR_BIT_TYPES without a change of its numbers."""
    nibbles, scales, zeros = _PARSERS[kind](data.reshape(-1, GGML_QUANT_SIZES[kind][1]))
    rows, groups = shape[0], shape[1] // GROUP
    return FourBits(
        nibbles.reshape(rows, groups, GROUP // 2),
        scales.reshape(rows, groups),
        zeros.reshape(rows, groups),
    )


def _half(blocks: _Bytes, at: int) -> _Floats:
    """Read the float16 at an offset of each block."""
    return blocks[:, at : at + 2].copy().view("<f2")[:, 0].astype(np.float32)


def _q4_0(blocks: _Bytes) -> _Blocks:
    """Split blocks of 32: d, 16 bytes; w = d * (q - 8)."""
    scales = _half(blocks, 0)
    return blocks[:, 2:], scales, np.zeros_like(scales)


def _q4_1(blocks: _Bytes) -> _Blocks:
    """Split blocks of 32: d, m, 16 bytes; w = d * q + m."""
    scales = _half(blocks, 0)
    return blocks[:, 4:], scales, _half(blocks, 2) + 8 * scales


def _q4_k(blocks: _Bytes) -> _Blocks:
    """Split blocks of 8 groups: d, dmin, 12 bytes of s and m, 128 bytes; w = d s q - dmin m.

    32 bytes at a time have one group in their low halves and the next one in their high ones.
    """
    multiples, minima = Q4_K.get_scale_min(blocks[:, 4:16])
    scales = _half(blocks, 0)[:, None] * multiples.astype(np.float32)
    zeros = 8 * scales - _half(blocks, 2)[:, None] * minima.astype(np.float32)
    pairs = blocks[:, 16:].reshape(len(blocks), 4, 2, GROUP // 2)
    first, second = pairs[:, :, 0], pairs[:, :, 1]  # columns 0 to 15, and 16 to 31
    low = (first & 15) | (second & 15) << 4
    high = first >> 4 | (second & 0xF0)
    return np.stack([low, high], 2), scales, zeros


_PARSERS: dict[GGMLQuantizationType, Callable[[_Bytes], _Blocks]] = {
    GGMLQuantizationType.Q4_0: _q4_0,
    GGMLQuantizationType.Q4_1: _q4_1,
    GGMLQuantizationType.Q4_K: _q4_k,
}

FOUR_BIT_TYPES = frozenset(_PARSERS)
