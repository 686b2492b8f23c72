"""Token ids in 4 bytes each: a tuple of them takes 36, of which a peer sends 2."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload


class TokenIds(Sequence[int]):
    """Token ids that came from a peer; equal to a tuple of the same ones."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Iterable[int]) -> None:
        """Hold ids of 32 bits."""
        self._ids = array("I", ids)

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[int, ...]: ...
    def __getitem__(self, at: int | slice) -> int | tuple[int, ...]:
        return self._ids[at] if isinstance(at, int) else tuple(self._ids[at])

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TokenIds):
            return self._ids == other._ids
        return tuple(self._ids) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._ids))

    def __repr__(self) -> str:
        return f"TokenIds({self._ids.tolist()})"
