"""Damage to one file: a flipped byte, a lost end, two sectors in each other's place."""

import random
from dataclasses import dataclass
from pathlib import Path

SECTOR_BYTES = 512
SWAPS = 100
"""Pairs of sectors of one file that are swapped at most."""
ZEROS = 8
"""Zeros on both sides of a byte that make it one between rows."""
ROUNDS = 7
"""Rounds over all bytes; no divisor of the number of bits."""
BLOCK_BYTES = 128
SKIPPED = (".lock", "-shm")
"""Files without content of their own."""


@dataclass(frozen=True, slots=True)
class Flip:
    """The bits of `mask` are flipped in one byte."""

    file: Path
    at: int
    mask: int

    def of(self, data: bytes) -> bytes:
        """Return the damaged content."""
        changed = bytearray(data)
        changed[self.at] ^= self.mask
        return bytes(changed)


@dataclass(frozen=True, slots=True)
class Cut:
    """The file ends after `size` bytes."""

    file: Path
    size: int

    def of(self, data: bytes) -> bytes:
        """Return the damaged content."""
        return data[: self.size]


@dataclass(frozen=True, slots=True)
class Swap:
    """The sectors of these numbers are in each other's place."""

    file: Path
    first: int
    second: int

    def of(self, data: bytes) -> bytes:
        """Return the damaged content."""
        low, high = sorted((self.first, self.second))
        one, other = (slice(n * SECTOR_BYTES, (n + 1) * SECTOR_BYTES) for n in (low, high))
        between = data[one.stop : other.start]
        return data[: one.start] + data[other] + between + data[one] + data[other.stop :]


Damage = Flip | Cut | Swap


def contents(folder: Path) -> dict[Path, bytes]:
    """Return the content of each file with content of its own, by its path in the folder."""
    paths = (path for path in sorted(folder.rglob("*")) if not path.name.endswith(SKIPPED))
    return {path.relative_to(folder): path.read_bytes() for path in paths if path.is_file()}


def flips(files: dict[Path, bytes], mask: int | None = None) -> list[Damage]:
    """Return a flip of each byte; without a mask, of one bit, the next one with each byte.

    They come in rounds over all files, so that those judged first are spread evenly.
    """
    all_bytes = [(file, at) for file, data in files.items() for at in range(len(data))]
    order = (n for begin in range(ROUNDS) for n in range(begin, len(all_bytes), ROUNDS))
    return [Flip(*all_bytes[n], mask or 1 << n % 8) for n in order]


def is_between(data: bytes, at: int) -> bool:
    """Say whether a byte is among zeros alone."""
    return not any(data[max(0, at - ZEROS) : at + ZEROS + 1])


@dataclass(frozen=True, slots=True)
class Block:
    """The bits of `mask` are flipped in each byte between rows of one block."""

    file: Path
    number: int
    mask: int

    def of(self, data: bytes) -> bytes:
        """Return the damaged content."""
        changed = bytearray(data)
        for at in range(self.number * BLOCK_BYTES, min(len(data), (self.number + 1) * BLOCK_BYTES)):
            changed[at] ^= self.mask if is_between(data, at) else 0
        return bytes(changed)


def cuts(files: dict[Path, bytes]) -> list[Damage]:
    """Return a cut of each file before each of its sectors."""
    sizes = {file: range(0, len(data), SECTOR_BYTES) for file, data in files.items()}
    return [Cut(file, size) for file in files for size in sizes[file]]


def swaps(files: dict[Path, bytes], seed: int = 7) -> list[Damage]:
    """Return random swaps of sectors within each file."""
    chance, found = random.Random(seed), list[Damage]()
    for file, data in files.items():
        sectors = range(len(data) // SECTOR_BYTES)
        pairs = [(first, second) for first in sectors for second in sectors if first < second]
        some = chance.sample(pairs, min(SWAPS, len(pairs)))
        found += [Swap(file, first, second) for first, second in some]
    return found
