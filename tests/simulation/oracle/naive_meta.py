"""The contents of the document, by the naive merge of its unit tests (spec/06-document)."""

from collections.abc import Iterable, Set

from replica.document.projection import EMPTY_UPDATE, Update
from replica.ids import EntryId
from replica.log.body import DocumentUpdate
from tests.replica.document.naive_document import naive_document
from tests.simulation.oracle.history import Record


def naive_meta(records: Iterable[Record], visible: Set[EntryId]) -> dict[str, object]:
    """Return the conversation's own data, from the entries of its document track."""
    updates = []
    for record in records:
        h, body = record.entry.header, record.body
        counts = isinstance(body, DocumentUpdate) and record.entry.id in visible
        data = body.update if counts else EMPTY_UPDATE
        updates.append(Update(record.entry.id, h.lane, h.seq, h.prev, h.parents, h.lamport, data))
    document, _ = naive_document(updates)
    return document["meta"]
