"""A simulated disk: written entries stay, unless the seed removes them."""

from replica.ids import ConversationId, EntryId, Position
from replica.log.damage import MEMBERSHIP_TRACKS, Lost
from replica.log.entry import Entry


class Disk:
    """Entries in the order they became durable, acks, and snapshots."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.acks: dict[ConversationId, set[Position]] = {}
        self.ever: set[EntryId] = set()
        self.lost: dict[EntryId, Entry] = {}
        """Unreadable entries; they count as lost until they are written again."""
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
        """Return the losses as a store reports them."""
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
        """Restore the latest backup, acks and all; return the number of entries removed."""
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
