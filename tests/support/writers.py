"""A deterministic author of entries, the one of the conformance kit; and whole logs by it."""

import itertools

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.writers import Writer, said
from replica.log.damage import Lost
from replica.log.entry import Entry
from replica.log.kinds import Kind


def log(count: int, *, seed: int = 1, text: str = "hello") -> list[Entry]:
    """Return a genesis and `count` messages, each following the one before."""
    writer = Writer(seed)
    entries = [writer.genesis()]
    for number in range(count):
        body = said(f"{text} {number}")
        entries.append(writer.write(entries[0].conversation, body, parents=[entries[-1]]))
    return entries


def lost(*entries: Entry) -> Lost:
    """Return how a store reports that it lost these entries."""
    ids = frozenset(e.id for e in entries)
    kinds = (Kind.GENESIS, Kind.MEMBER)
    return Lost(ids, frozenset(e.id for e in entries if e.header.kind in kinds))


def low_key(*, below: bytes = b"\x01") -> Ed25519PrivateKey:
    """Search for a key whose public half sorts before `below`, as anyone can."""
    ground = (Writer(f"low {seed}".encode()) for seed in itertools.count())
    return next(writer.key for writer in ground if writer.public < below)


__all__ = ["Writer", "log", "lost", "low_key", "said"]
