"""A deterministic author of entries, the one of the conformance kit; and whole logs by it."""

from antiphon.conformance.writers import Writer, low_key, said
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


__all__ = ["Writer", "log", "lost", "low_key", "said"]
