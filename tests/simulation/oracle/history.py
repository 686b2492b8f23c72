"""The history of a run: every entry as its author signed it, and the ids it names."""

from collections.abc import Iterable
from dataclasses import dataclass

from replica.ids import ConversationId, EntryId
from replica.log.body import Body, Member, Revocation, Seal
from replica.log.entry import Entry


class Violation(AssertionError):
    """A claim was violated."""


@dataclass(frozen=True, slots=True)
class Record:
    """One entry as its author wrote it."""

    entry: Entry
    body: Body
    writer: str

    @property
    def named(self) -> tuple[EntryId, ...]:
        """Ids without which the entry can't be admitted."""
        h = self.entry.header
        ids = [i for i in (h.prev, h.basis, *h.parents) if i is not None]
        if isinstance(self.body, Seal):
            ids += [self.body.request, *self.body.entries, *self.body.membership_heads]
            ids += [self.body.prev_seal] if self.body.prev_seal is not None else []
        if isinstance(self.body, Member) and isinstance(self.body.change, Revocation):
            ids += [cut.id for cut in self.body.change.cuts]
        return tuple(ids)


class RecordedLog:
    """Entries of one conversation, in the form that the naive implementations read."""

    def __init__(self, conversation: ConversationId, records: dict[EntryId, Record]) -> None:
        self.conversation = conversation
        self.entries = {i: record.entry for i, record in records.items()}
        self._records = records
        self._children: dict[EntryId, list[EntryId]] = {}
        for i, entry in self.entries.items():
            for parent in entry.header.parents:
                self._children.setdefault(parent, []).append(i)

    def body(self, entry_id: EntryId) -> Body:
        return self._records[entry_id].body

    def children(self, entry_id: EntryId) -> list[EntryId]:
        return list(self._children.get(entry_id, ()))


class History:
    """All records by id."""

    def __init__(self) -> None:
        self.records: dict[EntryId, Record] = {}

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, entry_id: EntryId) -> Record:
        return self.records[entry_id]

    def authored(self, name: str, entry: Entry, body: Body) -> None:
        """Record an entry when it is signed."""
        self.records[entry.id] = Record(entry, body, name)

    def check(self, name: str, entry: Entry) -> None:
        """Compare an entry that `name` holds with the author's."""
        record = self.records.get(entry.id)
        if record is None:
            raise Violation(f"{name} holds {entry.id.hex()[:6]}, which has no author")
        ours, theirs = record.entry, entry
        if (ours.header_bytes, ours.signature) != (theirs.header_bytes, theirs.signature):
            raise Violation(f"{name} holds other bytes of {entry.id.hex()[:6]}")
        if ours.body != theirs.body:
            raise Violation(f"{name} holds another body of {entry.id.hex()[:6]}")

    def log_of(self, conversation: ConversationId, ids: Iterable[EntryId]) -> RecordedLog:
        """Return these entries of a conversation as a log."""
        return RecordedLog(conversation, {i: self.records[i] for i in ids})


def short(ids: Iterable[EntryId]) -> list[str]:
    """Return short ids for a message."""
    return [i.hex()[:6] for i in sorted(ids)]
