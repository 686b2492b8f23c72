"""The key ring: the secrets of derived state that hosts may share (spec/08-checkpoint §8).

    <folder>/salt.secret         separates the pages of different owners
             checkpoint.secret   authenticates manifests on disk
             archive.secret      encrypts checkpoints that travel

By default it is the host's data folder. To move checkpoints between hosts, an operator
copies the three files into the folder that --key-ring of each host names. They are not
derived state: nothing deletes them.
"""

from dataclasses import dataclass, field
from pathlib import Path

from replica.io import load_or_create_secret


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Three secrets of 32 bytes."""

    salt: bytes = field(repr=False)
    checkpoint: bytes = field(repr=False)
    archive: bytes = field(repr=False)

    @classmethod
    def load(cls, folder: Path) -> "KeyRing":
        """Read the secrets of a folder; create those that are missing. Raises KeyFileInvalid."""
        names = ("salt", "checkpoint", "archive")
        return cls(*(load_or_create_secret(folder / f"{name}.secret") for name in names))
