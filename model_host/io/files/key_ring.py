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

import structlog

from replica.io import SecretInvalid, load_or_create_secret, typed_errors
from replica.refusals import KeyFileInvalid

log = structlog.get_logger()

_NAMES = ("salt", "checkpoint", "archive")


class KeyRingMissing(KeyFileInvalid):
    """The folder of the key ring has no secret, and the checkpoints here are of another ring."""

    next_step = (
        "Correct `key_ring`, or copy salt.secret, checkpoint.secret and archive.secret of the ring"
        " there. To begin with a new ring, delete the folder of the checkpoints."
    )


class RingSecretInvalid(SecretInvalid):
    """A secret of a named key ring is damaged, or other users can read it."""

    next_step = (
        "Run `chmod 600` on the file, where it is open to others. Else copy it from another host"
        " of the ring. If there is none, move it away: the next start makes another secret, and"
        " the checkpoints that need the old one are computed again."
    )


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Three secrets of 32 bytes."""

    salt: bytes = field(repr=False)
    checkpoint: bytes = field(repr=False)
    archive: bytes = field(repr=False)

    @classmethod
    def load(cls, folder: Path) -> "KeyRing":
        """Read the secrets of a folder; create those that are missing. Raises KeyFileInvalid."""
        return cls(*(load_or_create_secret(_path(folder, name)) for name in _NAMES))

    @classmethod
    def load_named(cls, folder: Path, checkpoints: Path) -> "KeyRing":
        """Read the ring in the folder that an operator names, which a typing error may be in.

        One without a secret is made where no checkpoint is stored, which it would make useless.
        Raises KeyRingMissing, RingSecretInvalid or KeyFileInvalid.
        """
        with typed_errors():
            missing = [name for name in _NAMES if not _path(folder, name).exists()]
            is_new = len(missing) == len(_NAMES)
            if is_new and any(checkpoints.glob("*/*.manifest")):
                raise KeyRingMissing(f"{folder} has no key ring, and {checkpoints} has checkpoints")
        try:
            ring = cls.load(folder)
        except SecretInvalid as error:  # `antiphon repair` mends data folders, and no ring
            raise RingSecretInvalid(error.detail) from error
        if is_new:
            log.info("key ring made", path=str(folder))
        elif missing:  # one was moved away, or a ring was not copied whole
            log.warning(
                "the key ring was incomplete, other hosts lack what was made",
                path=str(folder),
                detail=", ".join(_path(folder, name).name for name in missing),
            )
        return ring


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.secret"
