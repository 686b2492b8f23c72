"""KV caches of the torch engine: one tensor per layer (spec/08-checkpoint)."""

from collections.abc import Callable

import torch

from model_host.kv import SLAB_TOKENS, Bytes
from model_host.model_config import ModelConfig


class SlabCache:
    """A KVCache of one tensor per layer, [2, H_kv, T, D], grown by slabs of 512 tokens.

    Contiguous along T, because gathering small pages before attention takes milliseconds
    per token. Growth copies layer by layer, so its peak is one layer above the new size.
    """

    def __init__(
        self, config: ModelConfig, dtype: torch.dtype, claim: Callable[[int], None] | None = None
    ) -> None:
        """Start empty; `claim(bytes)` is called before each growth and may refuse it."""
        self._shape = (2, config.kv_heads, config.head_width)
        self._dtype = dtype
        self._claim = claim
        self._layers = [self._zeros(0) for _ in range(config.layers)]
        self._tokens = 0
        self._touched = 0  # positions up to here may hold bytes other than zero

    def _zeros(self, tokens: int) -> torch.Tensor:
        # Attention multiplies masked values by an exact zero. Arbitrary numbers are harmless
        # there, but 0 * NaN is NaN, so memory is always initialised.
        kinds, heads, width = self._shape
        # Growth can happen inside a decode step, in inference mode. A tensor created there
        # can't be written outside it, as `truncate` does.
        with torch.inference_mode(False):  # a positional parameter of torch
            return torch.zeros((kinds, heads, tokens, width), dtype=self._dtype)

    @property
    def tokens(self) -> int:
        """Return the number of valid positions."""
        return self._tokens

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of one position over all layers."""
        kinds, heads, width = self._shape
        return len(self._layers) * kinds * heads * width * int(self._dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Return the memory held, in bytes."""
        return self._layers[0].shape[2] * self.bytes_per_token

    def reserve(self, tokens: int) -> None:
        """Reserve memory for `tokens` positions; see KVCache."""
        held = self._layers[0].shape[2]
        if tokens > held:
            wanted = -(-tokens // SLAB_TOKENS) * SLAB_TOKENS
            if self._claim is not None:
                self._claim((wanted - held) * self.bytes_per_token)
            for index, old in enumerate(self._layers):
                self._layers[index] = self._zeros(wanted)
                self._layers[index][:, :, : self._touched] = old[:, :, : self._touched]
        self._touched = max(self._touched, tokens)

    def layer(self, index: int) -> torch.Tensor:
        """Return keys and values of a layer, [2, H_kv, T, D]; see KVCache."""
        return self._layers[index]

    def commit(self, tokens: int) -> None:
        """Declare the first `tokens` positions written and valid."""
        assert self._tokens <= tokens <= self._touched, "commit follows reserve"
        self._tokens = tokens

    def truncate(self, tokens: int) -> None:
        """Keep the first `tokens` positions and zero the rest; the memory stays allocated."""
        assert 0 <= tokens <= self._tokens, "truncate never extends"
        for layer in self._layers:
            layer[:, :, tokens : self._touched] = 0
        self._tokens = self._touched = tokens

    def read(self, start: int, stop: int) -> Bytes:
        """Copy positions out, as the bytes of [L, 2, H_kv, stop - start, D]."""
        assert 0 <= start <= stop <= self._tokens, "only valid positions are read"
        copy = torch.stack([layer[:, :, start:stop] for layer in self._layers])
        return copy.view(torch.uint8).flatten().numpy()

    def write(self, start: int, stop: int, payload: Bytes) -> None:
        """Copy reserved positions in, from the bytes of [L, 2, H_kv, stop - start, D]."""
        assert self._tokens <= start <= stop <= self._touched, "only reserved positions"
        kinds, heads, width = self._shape
        pages = torch.from_numpy(payload).view(self._dtype)
        for layer, page in zip(
            self._layers, pages.view(-1, kinds, heads, stop - start, width), strict=True
        ):
            layer[:, :, start:stop] = page
