"""One conversation in memory: its log, order and running drafts.

Pure. Links read and extend it.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from replica.conversation.drafts import DraftStream
from replica.document import EMPTY_UPDATE, NotCausal, Update
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
from replica.order import Order, frontier
from replica.refusals import ConversationDamaged

if TYPE_CHECKING:
    from replica.document import Document

_ENTRY_BYTES = 3_000
"""Memory that an entry takes beside its bytes, with its part of lanes, cover and order."""


class _Batch:
    """A context at the end of which the entries admitted in it are folded, once."""

    def __init__(self, held: "Conversation") -> None:
        self._held = held

    def __enter__(self) -> None:
        self._held.batches += 1

    def __exit__(self, kind: type[BaseException] | None, *_raised: object) -> None:
        self._held.batches -= 1
        if kind is None or issubclass(kind, Exception):
            self._held.fold()


class Conversation:
    """The log of a conversation, with the state folded from it."""

    def __init__(self, conversation: ConversationId) -> None:
        """Start empty."""
        self.id = conversation
        self.log = Log(conversation)
        self.order = Order(self.log)
        self.damage = Damage()
        self._unfolded: list[Entry] = []
        self.batches = 0
        """Batches that run; they may be nested."""
        self.drafts: dict[EntryId, DraftStream] = {}
        self._document: Document | None = None
        self._had_tail = False
        """Whether a body that came made the tail be dropped since the last fold."""
        self._unread: list[Entry] = []
        """Entries of the document track that were covered since the document was read."""

    @classmethod
    def restore(
        cls, conversation: ConversationId, entries: Iterable[Entry], lost: Lost = NOTHING_LOST
    ) -> "Conversation":
        """Rebuild from stored entries, which were verified before they were stored.

        Entries that follow one that the store `lost` are pending until it comes again.
        """
        restored = cls(conversation)
        with restored.batch:
            for entry in sorted(entries, key=send_order):
                restored.admit(entry, verified=True)
        log = restored.log
        restored.damage = Damage(lost, log.pending.values(), log.admission.all_missing())
        return restored

    def admit(self, entry: Entry, *, verified: bool = False) -> Verdict:
        """Admit an entry and fold it; see Log.admit."""
        pending = self.log.pending.get(entry.id)
        verdict = self.log.admit(entry, verified=verified)
        if pending is not None and pending.body is None and entry.body is not None:
            self.damage.mark_unstored(entry.id)
        if isinstance(verdict, Admitted):
            self._unfolded += verdict.entries
            if self.damage:
                verdict = replace(verdict, stored=self.damage.receive(verdict.entries))
            self.fold()
        elif isinstance(verdict, Duplicate) and verdict.filled is not None:
            self._document = None
            self._had_tail |= self.order.open_tail is not None
            self.order.open_tail = None  # the body may turn out to be malformed
        return verdict

    def admit_known(self, entries: Iterable[Entry]) -> tuple[Entry, ...]:
        """Admit entries that were verified before; return the new ones and the filled ones."""
        new: list[Entry] = []
        with self.batch:
            for entry in entries:
                match self.admit(entry, verified=True):
                    case Admitted(admitted):
                        new += admitted
                    case Duplicate(filled) if filled is not None:
                        new.append(filled)
                    case _:
                        pass
        return tuple(new)

    def prepare(self) -> None:
        """Compute what the first peer asks for: the digest, and the parents of the next entry."""
        if self.log.genesis is not None:
            tips = self.order.tips()
            frontier(self.order, tips[-1] if tips else None)
        self.log.digest  # noqa: B018  # kept with the log

    @property
    def batch(self) -> _Batch:
        """A context in which entries are admitted and folded once, at its end; `order` lags behind.

        A change of membership may need a fold from scratch. A frame with many such
        changes then needs one pass, not one for each.
        """
        return _Batch(self)

    def fold(self) -> None:
        """Fold what was admitted, unless a batch runs, whose end does it."""
        if self.batches:
            return
        admitted, self._unfolded = self._unfolded, []
        had_tail, self._had_tail = self._had_tail or self.order.open_tail is not None, False
        # The order asks for what is covered, so that the log knows what a later grant covers.
        self.order.receive(admitted)
        self._end_drafts(admitted)
        self._note_changes(admitted)
        has_changed = any(entry.header.track == Track.MEMBERSHIP for entry in admitted)
        is_due = had_tail and (has_changed or self.order.open_tail is None)
        if is_due and self.log.meter.may_pause:
            self.prepare()  # else whoever needs the tail next is held up

    @property
    def document(self) -> "Document":
        """The shared document: titles, branch names, annotations; built on first use."""
        if self._document is None or self._unread:
            self._document = self._read_document()
        return self._document

    def _read_document(self) -> "Document":
        # pycrdt is imported only for callers that use the document.
        from replica.document import Document

        known, self._document = self._document, None  # none is kept if the engine fails
        unread, self._unread = self._unread, []
        if known is not None:
            with suppress(NotCausal):  # an entry follows one that was held back
                known.receive(*updates_of(self.log, unread))
                return known
        return Document(updates_of(self.log))

    def _note_changes(self, entries: Iterable[Entry]) -> None:
        # A change of membership may make updates void or valid: the document is built anew.
        tracks = {entry.header.track for entry in entries}
        if tracks & {Track.ALL, Track.MEMBERSHIP}:
            self._document = None
        elif self._document is not None:
            covered = map(self.log.entries.__getitem__, self.log.offered([e.id for e in entries]))
            self._unread += (entry for entry in covered if entry.header.track == Track.DOCUMENT)

    def _end_drafts(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.header.kind != Kind.GENERATION:
                continue
            for parent in entry.header.parents:
                node = self.order.nodes.get(parent)
                if node is not None and node.generation == entry.id:
                    self.drafts.pop(node.seal.request, None)

    def is_member(self, key: PublicKey) -> bool:
        """Say whether `key` may read this conversation; nobody may while it is blocked."""
        return not self.damage.is_blocking and self.log.roster.now.is_member(key)

    @property
    def creator(self) -> PublicKey | None:
        """The author of the genesis; None before it is admitted."""
        genesis = self.log.genesis
        return genesis.header.author if genesis is not None else None

    @property
    def memory_bytes(self) -> int:
        """Memory of the entries and of what is folded from them, about."""
        return self.log.size_bytes + _ENTRY_BYTES * len(self.log)

    @property
    def work(self) -> int:
        """Number of entries judged or folded so far beyond their own admission (LIM-9).

        A field of a long body counts like one: decoding it takes about as long.
        """
        return self.log.meter.counted

    @property
    def is_blocked(self) -> bool:
        """Say whether membership entries are lost, so that no permission can be decided."""
        return self.damage.is_blocking

    def remaining_membership(self) -> list[EntryId]:
        """Return the ids of the membership entries still held, without the genesis, in send order.

        Entries pending for lost ones are included: another holder may lack just these.
        """
        entries = (*self.log.entries.values(), *self.log.pending.values())
        found = (e for e in entries if e.header.track == Track.MEMBERSHIP)
        return [entry.id for entry in sorted(found, key=send_order)]

    def find(self, entry_id: EntryId) -> Entry | None:
        """Return an admitted or pending entry, None if unknown."""
        return self.log.entries.get(entry_id) or self.log.pending.get(entry_id)

    def require_whole(self) -> None:
        """Raise ConversationDamaged, with the missing ids, while the conversation is blocked."""
        if self.is_blocked:
            raise ConversationDamaged(missing=sorted(self.damage.missing))

    def next_position(self, lane: Lane) -> tuple[int, EntryId | None]:
        """Return (seq, prev) for the next entry of an unforked lane."""
        tips = self.log.lane_tips(lane)
        if not tips:
            return 0, None
        # A forked lane is never extended: its author begins a new epoch.
        assert len(tips) == 1, "a forked lane is not extended"
        return self.log.entries[tips[0]].header.seq + 1, tips[0]


def is_absent(held: Conversation) -> bool:
    """Say whether nothing of a conversation is held, nor was."""
    return not (held.log.entries or held.log.pending or held.damage)


def updates_of(log: Log, entries: Iterable[Entry] | None = None) -> list[Update]:
    """Return the covered ones of these entries, by default all, as updates (spec/06-document).

    Entries of other kinds and void ones are empty updates, so that their ancestors stay
    reachable. An update without its body is held back, and so are the entries that follow it.
    """
    updates: list[Update] = []
    held_back: set[EntryId] = set()
    covered = log.covered()
    among = log.entries.values() if entries is None else entries
    on_track = (e for e in among if e.header.track in (Track.ALL, Track.DOCUMENT))
    for entry in sorted(on_track, key=lambda e: e.order_key):
        header = entry.header
        if entry.id not in covered:
            continue  # other replicas need not hold it, and no entry of a member may follow it
        counts = header.kind == Kind.DOCUMENT and log.membership.is_visible(entry)
        if (counts and entry.body is None) or held_back & {header.prev, *header.parents}:
            held_back.add(entry.id)
            continue
        body = log.body(entry.id) if counts else None
        data = body.update if isinstance(body, DocumentUpdate) else EMPTY_UPDATE
        updates.append(
            Update(
                entry.id, header.lane, header.seq, header.prev, header.parents, header.lamport, data
            )
        )
    return updates
