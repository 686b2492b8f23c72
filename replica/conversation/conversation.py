"""One conversation in memory: log, order and the drafts that run in it.

Pure. The shelf is what a replica or a hub holds; links read and extend it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from replica.conversation.drafts import DraftStream
from replica.document import EMPTY_UPDATE, Update
from replica.ids import ConversationId, EntryId, Lane, PublicKey, Track
from replica.log import Admitted, DocumentUpdate, Duplicate, Entry, Kind, Log, Verdict, send_order
from replica.order import Order

if TYPE_CHECKING:
    from replica.document import Document


class Conversation:
    """The log of a conversation with everything folded from it."""

    def __init__(self, conversation: ConversationId) -> None:
        """Start empty."""
        self.id = conversation
        self.log = Log(conversation)
        self.order = Order(self.log)
        self._unfolded: list[Entry] = []
        self._batches = 0
        self.drafts: dict[EntryId, DraftStream] = {}
        self._document: Document | None = None

    @classmethod
    def restore(cls, conversation: ConversationId, entries: Iterable[Entry]) -> "Conversation":
        """Rebuild from stored entries, which were verified before they were stored."""
        restored = cls(conversation)
        with restored.batch():
            for entry in sorted(entries, key=send_order):
                restored.admit(entry, verified=True)
        return restored

    def admit(self, entry: Entry, *, verified: bool = False) -> Verdict:
        """Admit an entry and fold it in; see Log.admit."""
        verdict = self.log.admit(entry, verified=verified)
        if isinstance(verdict, Admitted):
            self._unfolded += verdict.entries
            if not self._batches:
                self._fold()
        elif isinstance(verdict, Duplicate) and verdict.filled is not None:
            self._document = None
        return verdict

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Fold what is admitted meanwhile once, at the end; until then `order` stands still.

        A change of membership may take folding from scratch: one frame full of
        them is to cost one pass, not one each.
        """
        self._batches += 1
        try:
            yield
        finally:
            self._batches -= 1
            if not self._batches:
                self._fold()

    def _fold(self) -> None:
        admitted, self._unfolded = self._unfolded, []
        self.order.receive(admitted)
        self._end_drafts(admitted)
        self._note_document(admitted)

    @property
    def document(self) -> "Document":
        """The shared document: titles, branch names, annotations; built when first asked for."""
        if self._document is None:
            # It brings pycrdt, which whoever never asks for a document does without.
            from replica.document import Document

            self._document = Document(updates_of(self.log))
        return self._document

    def _note_document(self, entries: Iterable[Entry]) -> None:
        # A change of membership may make updates void or valid: build anew when asked.
        tracks = {entry.header.track for entry in entries}
        if tracks & {Track.ALL, Track.MEMBERSHIP, Track.DOCUMENT}:
            self._document = None

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


def updates_of(log: Log) -> list[Update]:
    """Return the document track as updates (spec/06-document).

    Void entries count as empty, so that their ancestors stay reachable; an
    entry whose body is missing is held back, and with it what follows it.
    """
    updates: list[Update] = []
    held_back: set[EntryId] = set()
    for entry in sorted(log.entries.values(), key=lambda e: e.order_key):
        header = entry.header
        if header.track not in (Track.ALL, Track.DOCUMENT):
            continue
        if entry.body is None or held_back & {header.prev, *header.parents}:
            held_back.add(entry.id)
            continue
        body = log.body(entry.id)
        counts = isinstance(body, DocumentUpdate) and log.membership.is_visible(entry)
        data = body.update if counts and isinstance(body, DocumentUpdate) else EMPTY_UPDATE
        updates.append(
            Update(
                entry.id, header.lane, header.seq, header.prev, header.parents, header.lamport, data
            )
        )
    return updates


Shelf = dict[ConversationId, Conversation]
"""Everything held in memory, by id."""
