"""Four-bit matrices stand for exactly the numbers that the gguf package dequantises."""

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType as Kind

from model_host.engine.four_bits import FOUR_BIT_TYPES, FourBits, four_bits
from tests.model_host.engine import tiny_model

ROWS, COLUMNS = 6, 512


def _matrix(kind: Kind) -> tuple[npt.NDArray[np.uint8], FourBits]:
    values = np.random.default_rng(3).normal(0, 1, (ROWS, COLUMNS)).astype(np.float32)
    data = tiny_model.blocks(values, kind)
    return data, four_bits(data.reshape(-1), kind, (ROWS, COLUMNS))


def _numbers(matrix: FourBits) -> npt.NDArray[np.float64]:
    """Apply the definition to each number, in float64."""
    low, high = matrix.nibbles & 15, matrix.nibbles >> 4
    columns = np.concatenate([low, high], -1).astype(np.float64)
    values = (columns - 8) * matrix.scales[..., None] + matrix.zeros[..., None]
    return values.reshape(len(columns), -1)


@pytest.mark.parametrize("kind", sorted(FOUR_BIT_TYPES))
def test_the_numbers_are_those_of_the_file(kind: Kind) -> None:
    data, matrix = _matrix(kind)
    theirs = gguf.quants.dequantize(data, kind)
    assert np.abs(theirs).max() > 1e-3
    assert np.abs(_numbers(matrix) - theirs).max() < 1e-6 * np.abs(theirs).max()
    assert len(np.unique(matrix.nibbles)) > 100


@pytest.mark.parametrize("kind", sorted(FOUR_BIT_TYPES))
def test_rows_are_reordered_and_joined_with_their_groups(kind: Kind) -> None:
    _, matrix = _matrix(kind)
    joined = FourBits.concatenate([matrix, matrix.map_rows(lambda rows: rows[::-1])])
    numbers = _numbers(matrix)
    assert np.array_equal(_numbers(joined), np.concatenate([numbers, numbers[::-1]]))
