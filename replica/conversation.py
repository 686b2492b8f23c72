"""One conversation in memory: log, order and the drafts that run in it.

Pure. The shelf is what a replica or a hub holds; links read and extend it.
"""

from collections.abc import Iterable

from replica.drafts import DraftStream
from replica.entry import Entry, Kind
from replica.ids import ConversationId, EntryId, Lane, PublicKey
from replica.log import Admitted, Log, Verdict, send_order
from replica.order import Order


class Conversation:
    """The log of a conversation with everything folded from it."""

    def __init__(self, conversation: ConversationId) -> None:
        """Start empty."""
        self.id = conversation
        self.log = Log(conversation)
        self.order = Order(self.log)
        self.drafts: dict[EntryId, DraftStream] = {}

    @classmethod
    def restore(cls, conversation: ConversationId, entries: Iterable[Entry]) -> "Conversation":
        """Rebuild from stored entries, which were verified before they were stored."""
        restored = cls(conversation)
        for entry in sorted(entries, key=send_order):
            restored.admit(entry, verified=True)
        return restored

    def admit(self, entry: Entry, *, verified: bool = False) -> Verdict:
        """Admit an entry and fold it in; see Log.admit."""
        verdict = self.log.admit(entry, verified=verified)
        if isinstance(verdict, Admitted):
            self.order.receive(verdict.entries)
            self._end_drafts(verdict.entries)
        return verdict

    def _end_drafts(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.header.kind != Kind.GENERATION:
                continue
            for parent in entry.header.parents:
                node = self.order.nodes.get(parent)
                if node is not None and node.generation == entry.id:
                    self.drafts.pop(node.seal.request, None)

    def is_member(self, key: PublicKey) -> bool:
        """Say whether `key` may read this conversation now."""
        return self.log.membership.is_member(key)

    def next_place(self, lane: Lane) -> tuple[int, EntryId | None]:
        """Return (seq, prev) for the next entry of an unforked lane."""
        tips = self.log.lane_tips(lane)
        if not tips:
            return 0, None
        # A forked lane is never written on: its author mints a new epoch.
        assert len(tips) == 1, "a forked lane takes no more entries"
        return self.log.entries[tips[0]].header.seq + 1, tips[0]


Shelf = dict[ConversationId, Conversation]
"""Everything held in memory, by id."""
