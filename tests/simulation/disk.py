"""A disk: what was written stays, unless the seed takes it away."""

from replica.ids import ConversationId, EntryId, Position
from replica.log.damage import MEMBERSHIP_TRACKS, Lost
from replica.log.entry import Entry


class Disk:
    """Entries in the order they became durable, acks, and snapshots to fall back to."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.acks: dict[ConversationId, set[Position]] = {}
        self.ever: set[EntryId] = set()
        self.lost: dict[EntryId, Entry] = {}
        """What can't be read any more; it counts as gone until it is written again."""
        self.losses = 0
        self._snapshots: list[tuple[int, dict[ConversationId, set[Position]]]] = [(0, {})]

    def write(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.lost.pop(entry.id, None)
        self.ever.add(entry.id)

    def ids(self) -> set[EntryId]:
        return {entry.id for entry in self.entries}

    def conversations(self) -> dict[ConversationId, list[Entry]]:
        found: dict[ConversationId, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.conversation, []).append(entry)
        for entry in self.lost.values():
            found.setdefault(entry.conversation, [])
        return found

    def lost_of(self, conversation: ConversationId) -> Lost:
        """Return what a store tells of its damage."""
        lost = [e for e in self.lost.values() if e.conversation == conversation]
        members = (e.id for e in lost if e.header.track in MEMBERSHIP_TRACKS)
        return Lost(frozenset(e.id for e in lost), frozenset(members))

    def damage(self, ids: set[EntryId]) -> None:
        """Make entries unreadable."""
        self.lost |= {entry.id: entry for entry in self.entries if entry.id in ids}
        self.entries = [entry for entry in self.entries if entry.id not in ids]

    def snapshot(self) -> None:
        """Make a backup."""
        acks = {conversation: set(positions) for conversation, positions in self.acks.items()}
        self._snapshots.append((len(self.entries), acks))

    def roll_back(self) -> int:
        """Restore the latest backup, acks and all; return how many entries that takes away."""
        length, acks = self._snapshots[-1]
        lost = len(self.entries) - length
        del self.entries[length:]
        self.acks = {conversation: set(positions) for conversation, positions in acks.items()}
        self.losses += 1
        return lost

    def wipe(self) -> None:
        """Lose everything."""
        self.entries.clear()
        self.acks.clear()
        self._snapshots = [(0, {})]
        self.losses += 1
