"""What became of entries at the disk (spec/11-limits, LIM-11, LIM-15).

Pure. Entries that it refused count for nobody: neither their bytes, nor a conversation that
begins.
"""

from collections.abc import Sequence

from replica.log import Entry, Kind
from syncd.hub import Hub


def take_back(hub: Hub, refused: Sequence[Entry]) -> None:
    """Take back what entries were counted as that the disk refused."""
    for entry in refused:
        hub.disk.take_back(entry.conversation, (entry,))
        if entry.header.kind == Kind.GENESIS:
            hub.bringers.take_back(entry.conversation)


def note_stored(hub: Hub, stored: Sequence[Entry]) -> None:
    """Note entries that are durable, in the order in which they were admitted."""
    if stored and stored[0].header.kind == Kind.GENESIS:
        hub.bringers.note_stored(stored[0].conversation)
