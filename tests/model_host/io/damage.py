"""Damage to stored bytes, for tests."""

from pathlib import Path


def flip_at(path: Path, offset: int) -> None:
    """Flip one bit of the byte at an offset, from the end if negative."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
