"""Lineage keys: what a run of keys and values claims to be (spec/08-checkpoint §2). Pure.

    K_0 = SHA-256(namespace)      K_i = SHA-256(K_{i-1} || le32 token ids of page i)

A page has 16 tokens; the last one may be shorter. The namespace includes a salt, so two
sharing domains have no key in common.
"""

import hashlib
import struct
from collections.abc import Sequence
from typing import TypeVar

from model_host.kv.namespace import PAGE_TOKENS

ID_BYTES = 4
_PAGE_BYTES = PAGE_TOKENS * ID_BYTES

_Run = TypeVar("_Run", bytes, tuple[int, ...])


def pack_ids(ids: Sequence[int]) -> bytes:
    """Return token ids as 4-byte little-endian numbers."""
    return struct.pack(f"<{len(ids)}I", *ids)


def unpack_ids(packed: bytes | bytearray) -> tuple[int, ...]:
    """Return the token ids that `pack_ids` packed."""
    return struct.unpack(f"<{len(packed) // ID_BYTES}I", packed)


def common_tokens(one: _Run, other: _Run, places: int = 1) -> int:
    """Return the number of first tokens that two runs have in common.

    A token has so many places of a run: one where they are ids, `ID_BYTES` where they are packed.
    """
    low, high = 0, min(len(one), len(other)) // places
    while low < high:  # runs are compared in C, so halving beats a loop
        middle = (low + high + 1) // 2
        if one[low * places : middle * places] == other[low * places : middle * places]:
            low = middle
        else:
            high = middle - 1
    return low


def root_key(namespace: bytes) -> bytes:
    """Return the key of no tokens under a namespace, 32 bytes."""
    return hashlib.sha256(namespace).digest()


def extend_key(key: bytes, packed: bytes | bytearray) -> bytes:
    """Return the key after the packed ids that follow `key`, which ends at a whole page."""
    for at in range(0, len(packed), _PAGE_BYTES):
        key = hashlib.sha256(key + packed[at : at + _PAGE_BYTES]).digest()
    return key


class Lineage:
    """The lineage keys of a run of tokens under a namespace."""

    def __init__(self, namespace: bytes, ids: Sequence[int]) -> None:
        """Chain the whole pages of `ids`, 16 tokens each."""
        self.packed = pack_ids(ids)
        self._chain = [root_key(namespace)]
        for at in range(0, len(self.packed) - _PAGE_BYTES + 1, _PAGE_BYTES):
            page = self.packed[at : at + _PAGE_BYTES]
            self._chain.append(extend_key(self._chain[-1], page))

    def __len__(self) -> int:
        return len(self.packed) // ID_BYTES

    def at(self, tokens: int) -> bytes:
        """Return the key after the first `tokens` tokens."""
        assert tokens <= len(self), "a lineage has keys for its own tokens alone"
        page, rest = divmod(tokens, PAGE_TOKENS)
        if not rest:
            return self._chain[page]
        return extend_key(self._chain[page], self.packed[page * _PAGE_BYTES : tokens * ID_BYTES])
