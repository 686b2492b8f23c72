"""Entries that the disk refused: they count for nobody. Pure (spec/11-limits, LIM-11, LIM-15)."""

from collections.abc import Iterable

from replica.log import Entry, Kind
from syncd.hub import Hub


def take_back(hub: Hub, refused: Iterable[Entry]) -> None:
    """Take back what they were counted as: bytes on the disk, and conversations that begin."""
    for entry in refused:
        hub.disk.take_back(entry.conversation, (entry,))
        if entry.header.kind == Kind.GENESIS:
            hub.bringers.take_back(entry.conversation)
