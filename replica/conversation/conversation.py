"""One conversation in memory: log, order and the drafts that run in it.

Pure. Links read and extend it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from replica.conversation.drafts import DraftStream
from replica.document import EMPTY_UPDATE, Update
from replica.ids import ConversationId, EntryId, Lane, PublicKey, Track
from replica.log import (
    NOTHING_LOST,
    Admitted,
    Damage,
    DocumentUpdate,
    Duplicate,
    Entry,
    Kind,
    Log,
    Lost,
    Verdict,
    send_order,
)
from replica.order import Order
from replica.refusals import ConversationDamaged

if TYPE_CHECKING:
    from replica.document import Document


class Conversation:
    """The log of a conversation with everything folded from it."""

    def __init__(self, conversation: ConversationId) -> None:
        """Start empty."""
        self.id = conversation
        self.log = Log(conversation)
        self.order = Order(self.log)
        self.damage = Damage()
        self._unfolded: list[Entry] = []
        self._batches = 0
        self.drafts: dict[EntryId, DraftStream] = {}
        self._document: Document | None = None

    @classmethod
    def restore(
        cls, conversation: ConversationId, entries: Iterable[Entry], lost: Lost = NOTHING_LOST
    ) -> "Conversation":
        """Rebuild from stored entries, which were verified before they were stored.

        What follows an entry that the store `lost` waits until that comes again.
        """
        restored = cls(conversation)
        with restored.batch():
            for entry in sorted(entries, key=send_order):
                restored.admit(entry, verified=True)
        log = restored.log
        restored.damage = Damage(lost, log.pending.values(), log.admission.absent())
        return restored

    def admit(self, entry: Entry, *, verified: bool = False) -> Verdict:
        """Admit an entry and fold it in; see Log.admit."""
        waiting = self.log.pending.get(entry.id)
        verdict = self.log.admit(entry, verified=verified)
        if waiting is not None and waiting.body is None and entry.body is not None:
            self.damage.fill(entry.id)
        if isinstance(verdict, Admitted):
            self._unfolded += verdict.entries
            verdict = replace(verdict, stored=self.damage.receive(verdict.entries))
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
        """Say whether `key` may read this conversation now; nobody may while it is blocked."""
        return not self.is_blocked and self.log.membership.is_member(key)

    @property
    def is_blocked(self) -> bool:
        """Say whether the store lost membership entries, so that nobody can be judged."""
        return self.damage.is_blocking

    def membership_left(self) -> list[EntryId]:
        """Return the membership entries that are left, but for the genesis, in send order.

        Those that wait for lost ones are among them: another holder may lack just these.
        """
        entries = (*self.log.entries.values(), *self.log.pending.values())
        left = (e for e in entries if e.header.track == Track.MEMBERSHIP)
        return [entry.id for entry in sorted(left, key=send_order)]

    def find(self, entry_id: EntryId) -> Entry | None:
        """Return an entry, admitted or waiting."""
        return self.log.entries.get(entry_id) or self.log.pending.get(entry_id)

    def require_whole(self) -> None:
        """Raise ConversationDamaged, which names what is missing, while it is blocked."""
        if self.is_blocked:
            raise ConversationDamaged(missing=sorted(self.damage.missing))

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
