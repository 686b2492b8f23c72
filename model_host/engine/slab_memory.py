"""The slabs of the torch engine in one tensor (spec/08-checkpoint)."""

import mmap
import sys
from typing import Final

import torch

from model_host.kv import SLAB_TOKENS, Bytes
from model_host.model_config import ModelConfig

_GROUP: Final = 64  # tokens in which memory is used
_MAP_NORESERVE: Final = 0x4000


class TorchSlabMemory:
    """A `SlabMemory` (model_host/kv/memory.py) of [slabs, L, 2, H_kv, 512, D].

    On Linux its address space is reserved at once, and the system gives memory at the first
    write. `granule` is the number of tokens by which memory is used and given back: 64, or a
    slab where groups of 64 tokens don't fill whole memory pages. Elsewhere, and on another
    device, the tensor holds all its memory from the start.
    """

    def __init__(
        self, config: ModelConfig, dtype: torch.dtype, slabs: int, device: str = "cpu"
    ) -> None:
        """Reserve `slabs` slabs, all zero."""
        assert slabs > 0, "a memory has slabs"
        self._shape = (slabs, config.layers, 2, config.kv_heads, SLAB_TOKENS, config.head_width)
        self._heads = config.layers * 2 * config.kv_heads  # blocks [512, D] of one slab
        self._row_bytes = config.head_width * int(dtype.itemsize)
        self._slab_bytes = self._heads * SLAB_TOKENS * self._row_bytes
        self._map: mmap.mmap | None = None
        if device == "cpu" and sys.platform == "linux":
            self._map, self.pool = _reserve(self._shape, dtype, slabs * self._slab_bytes)
        else:
            with torch.inference_mode(False):
                self.pool = torch.zeros(self._shape, dtype=dtype, device=device)
        self.granule = self._find_granule()
        # Positions from here on are zero, and hold no memory of their own.
        self._used = [0] * slabs
        self._committed = [0] * slabs

    def _find_granule(self) -> int:
        """Return the fewest tokens whose memory can be given back, or 0 if none can."""
        if self._map is None:
            return 0
        if _GROUP * self._row_bytes % mmap.PAGESIZE == 0:
            return _GROUP
        return SLAB_TOKENS if self._slab_bytes % mmap.PAGESIZE == 0 else 0

    @property
    def slabs(self) -> int:
        """Return the number of slabs there are."""
        return self._shape[0]

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of one position over all layers."""
        return self._heads * self._row_bytes

    @property
    def nbytes(self) -> int:
        """Return the memory in use, in bytes, counted in granules."""
        if self.granule == 0:
            return len(self._used) * self._slab_bytes
        return sum(self._committed) * self.bytes_per_token

    def wrote(self, slab: int, stop: int) -> None:
        """Note that positions of a slab below `stop` may hold bytes other than zero."""
        if stop > self._used[slab]:
            self._used[slab] = stop
            if self.granule:
                held = -(-stop // self.granule) * self.granule
                self._committed[slab] = max(self._committed[slab], held)

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` positions of a slab to another."""
        self.pool[target, ..., :tokens, :] = self.pool[source, ..., :tokens, :]
        self.wrote(target, tokens)

    def clear(self, slab: int, start: int = 0) -> None:
        """Zero the positions of a slab from `start`, and give their memory back."""
        used = self._used[slab]
        if start >= used:
            return
        keep = SLAB_TOKENS
        if self.granule:
            keep = min(-(-start // self.granule) * self.granule, SLAB_TOKENS)
            self._give_back(slab, keep, self._committed[slab])
            self._committed[slab] = min(self._committed[slab], keep)
        if start < min(keep, used):
            self.pool[slab, ..., start : min(keep, used), :] = 0
        self._used[slab] = start

    def _give_back(self, slab: int, start: int, stop: int) -> None:
        """Give positions back to the system, which hands out zeros in their place."""
        assert self._map is not None, "memory is mapped"
        at = slab * self._slab_bytes
        if start == 0:
            self._map.madvise(mmap.MADV_DONTNEED, at, self._slab_bytes)
        elif start < stop:
            block, length = SLAB_TOKENS * self._row_bytes, (stop - start) * self._row_bytes
            for head in range(self._heads):
                first = at + head * block + start * self._row_bytes
                self._map.madvise(mmap.MADV_DONTNEED, first, length)

    def read(self, slab: int, start: int, stop: int) -> Bytes:
        """Copy positions out, as the bytes of [L, 2, H_kv, stop - start, D]."""
        part = self.pool[slab, ..., start:stop, :]
        copy = part.clone(memory_format=torch.contiguous_format).cpu()
        return copy.view(torch.uint8).flatten().numpy()

    def write(self, slab: int, start: int, stop: int, payload: Bytes) -> None:
        """Copy positions in; the inverse of `read`."""
        given = torch.from_numpy(payload).view(self.pool.dtype)
        self.pool[slab, ..., start:stop, :] = given.view(*self._shape[1:4], stop - start, -1)
        self.wrote(slab, stop)


def _reserve(
    shape: tuple[int, ...], dtype: torch.dtype, nbytes: int
) -> tuple[mmap.mmap, torch.Tensor]:
    """Map anonymous memory that is zero and not yet there, as a tensor."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    pages = mmap.mmap(-1, nbytes, flags=flags)
    # With huge pages a group of 64 tokens would take 2 MB of each layer at its first write.
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    with torch.inference_mode(False):
        return pages, torch.frombuffer(pages, dtype=dtype).view(shape)
