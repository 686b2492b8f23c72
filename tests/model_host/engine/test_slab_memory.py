"""The memory of slabs: zero until written, used and given back in groups of 64 tokens."""

import ctypes
import mmap
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from model_host.engine.slab_memory import TorchSlabMemory
from model_host.kv import SLAB_TOKENS, Bytes
from model_host.model_config import ModelConfig

CONFIG = ModelConfig(
    layers=3,
    width=64,
    ffn_width=96,
    heads=4,
    kv_heads=2,
    head_width=32,
    vocab=100,
    context_tokens=4096,
    rope_base=10_000.0,
    rms_eps=1e-5,
    tied=True,
)
DTYPES = [torch.bfloat16, torch.float32]


def _payload(memory: TorchSlabMemory, tokens: int, seed: int = 1) -> Bytes:
    """Return bytes of finite numbers for a number of positions."""
    values = np.random.default_rng(seed).normal(size=tokens * memory.bytes_per_token)
    numbers = torch.from_numpy(values).to(memory.pool.dtype).view(torch.uint8)
    return numbers[: tokens * memory.bytes_per_token].numpy()


def _resident_bytes(memory: TorchSlabMemory) -> int:
    """Count the pages of the memory that the system holds; the rest of the process is left out."""
    size = memory.pool.nbytes
    held = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    at, to = ctypes.c_void_p(memory.pool.data_ptr()), ctypes.c_void_p(held.ctypes.data)
    assert libc.mincore(at, ctypes.c_size_t(size), to) == 0, os.strerror(ctypes.get_errno())
    return int((held & 1).sum()) * mmap.PAGESIZE


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_written_is_read(dtype: torch.dtype) -> None:
    memory = TorchSlabMemory(CONFIG, dtype, 4)
    payload = _payload(memory, 100)
    memory.write(2, 30, 130, payload)
    assert np.array_equal(memory.read(2, 30, 130), payload)
    assert memory.bytes_per_token == len(payload) // 100
    stored = payload.view(np.uint8).reshape(3, 2, 2, 100, -1)
    assert np.array_equal(memory.read(2, 40, 50), stored[:, :, :, 10:20].flatten())
    assert not memory.read(2, 0, 30).any()
    assert not memory.read(2, 130, SLAB_TOKENS).any()
    assert not memory.read(1, 0, SLAB_TOKENS).any()


def test_what_is_read_is_a_copy() -> None:
    memory = TorchSlabMemory(CONFIG, torch.float32, 1)
    whole = memory.read(0, 0, SLAB_TOKENS)
    memory.write(0, 0, 10, _payload(memory, 10))
    assert not whole.any()


def test_a_copy_has_the_first_positions() -> None:
    memory = TorchSlabMemory(CONFIG, torch.bfloat16, 4)
    memory.write(3, 0, SLAB_TOKENS, _payload(memory, SLAB_TOKENS))
    memory.copy(3, 0, 77)
    assert np.array_equal(memory.read(0, 0, 77), memory.read(3, 0, 77))
    assert not memory.read(0, 77, SLAB_TOKENS).any()


# Groups of 64 tokens fill whole pages of memory, slabs do, neither does.
@pytest.mark.parametrize(("kv_heads", "width", "granule"), [(2, 32, 64), (2, 8, 512), (1, 3, 0)])
@pytest.mark.parametrize("start", [0, 1, 63, 64, 100, 128, 300, 511])
def test_cleared_positions_are_zero_and_others_stay(
    kv_heads: int, width: int, granule: int, start: int
) -> None:
    config = replace(CONFIG, kv_heads=kv_heads, head_width=width)
    memory = TorchSlabMemory(config, torch.bfloat16, 3)
    assert memory.granule == granule
    for slab in range(3):
        memory.write(slab, 0, 500, _payload(memory, 500, slab))
    before = [memory.read(slab, 0, SLAB_TOKENS) for slab in range(3)]
    memory.clear(1, start)
    assert not memory.read(1, start, SLAB_TOKENS).any()
    kept = before[1].reshape(3 * 2 * kv_heads, SLAB_TOKENS, -1)[:, : min(start, 500)]
    assert np.array_equal(memory.read(1, 0, min(start, 500)), kept.flatten())
    for slab in (0, 2):
        assert np.array_equal(memory.read(slab, 0, SLAB_TOKENS), before[slab])


def test_memory_is_used_and_given_back_by_64_tokens() -> None:
    memory = TorchSlabMemory(CONFIG, torch.bfloat16, 4)
    token = memory.bytes_per_token
    assert (memory.granule, memory.nbytes) == (64, 0)
    memory.write(0, 0, 65, _payload(memory, 65))
    assert memory.nbytes == 128 * token
    memory.copy(0, 1, 64)
    assert memory.nbytes == 192 * token
    memory.clear(0, 10)
    assert memory.nbytes == 128 * token
    memory.wrote(0, 20)
    assert memory.nbytes == 128 * token
    memory.clear(0)
    memory.clear(1)
    assert memory.nbytes == 0


def test_memory_that_cannot_be_given_back_by_groups_counts_by_slabs() -> None:
    config = replace(CONFIG, head_width=8)
    memory = TorchSlabMemory(config, torch.bfloat16, 4)
    slab = SLAB_TOKENS * memory.bytes_per_token
    memory.write(0, 0, 1, _payload(memory, 1))
    assert (memory.granule, memory.nbytes) == (SLAB_TOKENS, slab)
    memory.clear(0, 1)
    assert memory.nbytes == slab
    memory.clear(0)
    assert memory.nbytes == 0


def test_memory_that_is_never_given_back_always_counts() -> None:
    config = replace(CONFIG, kv_heads=1, head_width=3)
    memory = TorchSlabMemory(config, torch.bfloat16, 4)
    assert memory.granule == 0
    assert memory.nbytes == 4 * SLAB_TOKENS * memory.bytes_per_token


def test_the_system_gives_and_takes_memory_as_counted() -> None:
    """A large memory costs nothing until it is written, and nothing once it is cleared."""
    wide = replace(CONFIG, layers=30, head_width=64)
    memory = TorchSlabMemory(wide, torch.bfloat16, 2000)
    payload = _payload(memory, 64)
    assert _resident_bytes(memory) == 0
    for slab in range(16):
        memory.write(slab, 0, 64, payload)
    assert _resident_bytes(memory) == memory.nbytes
    for slab in range(16):
        memory.clear(slab)
    assert _resident_bytes(memory) == memory.nbytes == 0
