"""The document: titles, branch names and annotations (spec/06-document).

The document is derived state, rebuildable from the entries of its track by one
function, `project`. Each valid update is renamed before it reaches pycrdt:
its structs get a client number that grows in (lamport, id) order. So no two
entries ever share a struct id, and of two concurrent writes the later in that
order wins.

`Document` keeps the same result up to date entry by entry, and writes local
edits. This is the only module that imports pycrdt; bytes from others pass
replica/document_fold.py first. A Document belongs to the thread that made it.
"""

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pycrdt import Doc, Map, TransactionEvent, merge_updates

from replica.canonical import Json, canonical_json, plain
from replica.document_fold import (
    ROOTS,
    CheckedUpdate,
    DocumentFold,
    Update,
    client_id,
    entry_client,
)
from replica.errors import AntiphonError
from replica.ids import Digest, EntryId, Lane, tagged_sha256
from replica.yjs import (
    EMPTY_UPDATE,
    SAFE_INTEGER_MAX,
    decode_update,
    encode_update,
    rename_clients,
)

__all__ = [
    "Document",
    "Edit",
    "Projection",
    "Update",
    "client_id",
    "entry_client",
    "project",
]

PROJECTION_TAG = b"antiphon/v1/projection"
_ENTRY_HEX = re.compile(r"[0-9a-f]{64}")
_ANNOTATION_KEY = re.compile(r"([0-9a-f]{64})/(.+)", re.DOTALL)
# Above every number given out, so that a local edit comes after all it builds on.
_EDIT_CLIENT = SAFE_INTEGER_MAX
_NUMBER_LAMPORT_MAX = 2**32 - 2
_NUMBER_ID_BITS = 21


class DocumentEngineFailed(AntiphonError):
    """The merging engine panicked on input that passed every check."""

    reason = "DOCUMENT_ENGINE_FAILED"
    next_step = "Rebuild the document from the log; report the panic with the entry's id."


@dataclass(frozen=True, slots=True)
class Projection:
    """What the document says, as plain JSON data; ids are 64 lowercase hex digits.

    `annotations` maps an entry id to that entry's keys and values, `branches`
    a name to a seal id. Whole numbers up to 2**53 - 1 are ints, others floats.
    `void` names each update that doesn't count, with the reason.
    """

    meta: Mapping[str, Json]
    branches: Mapping[str, str]
    annotations: Mapping[str, Mapping[str, Json]]
    digest: Digest
    void: Mapping[EntryId, str]


def project(updates: Iterable[Update]) -> Projection:
    """Compute the document from all entries of its track, given in any order.

    This function is normative: replicas with the same entries get the same
    projection. Raises NotCausal if an entry's ancestors are not all given.
    """
    fold, _, doc = _build(updates)
    return _read(doc, fold.void)


class Document:
    """A live document: takes entries in causal order and writes local edits."""

    def __init__(self, updates: Iterable[Update] = ()) -> None:
        """Build from the entries of the track, in any order; see `project`."""
        self._updates = {update.id: update for update in updates}
        self._rebuild()

    @property
    def heads(self) -> tuple[EntryId, ...]:
        """The entries nothing follows yet, sorted; the parents of the next entry."""
        return self._fold.heads

    @property
    def projection(self) -> Projection:
        """What the document says now; equal to `project` of the entries received."""
        if self._projection is None:
            self._projection = _read(self._doc, self._fold.void)
        return self._projection

    def receive(self, update: Update) -> None:
        """Take one admitted entry in; an entry already known changes nothing.

        Raises NotCausal if an ancestor is missing; feed those first. A void
        update is no error: `projection.void` names it.
        """
        if update.id in self._updates:
            return
        checked = self._fold.receive(update)
        self._updates[update.id] = update
        self._projection = None
        if checked is None:
            return
        number = self._numbers.insert(update)
        if number is None:
            self._rebuild()
            return
        with _panics_typed():
            self._doc.apply_update(_renumbered(checked, self._numbers.by_entry))

    def edit(self, lane: Lane) -> "Edit":
        """Begin an edit by `lane` on top of everything received so far."""
        return Edit(self, lane)

    def write(self, lane: Lane, writes: Mapping[tuple[str, str], Json | None]) -> bytes:
        """Return the update by which `lane` makes `writes`: (root, key) → value, None deletes.

        The document itself changes only once the entry comes back through
        `receive`. Raises UpdateTooLarge; the result passes every other check.
        """
        captured = self._captured(writes)
        # The captured update names structs by number; on the wire entries name them.
        clients = {number: entry_client(id) for id, number in self._numbers.by_entry.items()}
        clients[_EDIT_CLIENT] = client_id(lane)
        data = encode_update(rename_clients(decode_update(captured), clients))
        self._fold.check(data, lane, own=EntryId(b""))
        return data

    def _captured(self, writes: Mapping[tuple[str, str], Json | None]) -> bytes:
        # A copy, so that an edit that never becomes an entry leaves no trace;
        # one transaction, so that the update holds no value typed over.
        captured: list[bytes] = []

        def capture(event: TransactionEvent) -> None:
            captured.append(event.update)

        with _panics_typed():
            copy: Doc[Any] = Doc(client_id=_EDIT_CLIENT)
            copy.apply_update(self._doc.get_update())
            maps = {root: copy.get(root, type=Map) for root in ROOTS}
            subscription = copy.observe(capture)
            with copy.transaction():
                for (root, key), value in sorted(writes.items(), key=lambda item: item[0]):
                    _write(maps[root], key, value)
            copy.unobserve(subscription)
            return merge_updates(*captured) if captured else EMPTY_UPDATE

    def _rebuild(self) -> None:
        self._fold, self._numbers, self._doc = _build(self._updates.values())
        self._projection: Projection | None = None
