"""The document: titles, branch names and annotations (spec/06-document).

The document is derived state: `project` computes it from the entries of its track.
Each valid update is renumbered before it reaches pycrdt: its structs get a client
number that grows in (lamport, id) order. So no two entries share a struct id, and of
two concurrent writes the later in that order wins.

`Document` updates the same result entry by entry, and makes local edits. This is
the only module that imports pycrdt; received bytes pass replica/document/fold.py
first. A Document may be used only in the thread that created it.
"""

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pycrdt import Doc, Map, TransactionEvent, merge_updates

from replica.document.canonical import Json, canonical_json, plain, plain_text
from replica.document.fold import (
    ROOTS,
    CheckedUpdate,
    DocumentFold,
    Update,
    client_id,
    entry_client,
)
from replica.document.lib0 import SAFE_INTEGER_MAX, ValueRefused, varuint
from replica.document.yjs import (
    EMPTY_UPDATE,
    Content,
    DecodedUpdate,
    Struct,
    StructId,
    decode_update,
    encode_update,
    named_clients,
    rename_clients,
)
from replica.errors import AntiphonError
from replica.ids import ID_BYTES, Digest, EntryId, Lane, PublicKey, tagged_sha256

__all__ = [
    "Document",
    "DocumentEngineError",
    "Edit",
    "Projection",
    "Update",
    "client_id",
    "entry_client",
    "meta_set_by",
    "project",
]

PROJECTION_TAG = b"antiphon/v1/projection"
_ENTRY_HEX = re.compile(r"[0-9a-f]{64}")
_ANNOTATION_KEY = re.compile(r"([0-9a-f]{64})/(.+)", re.DOTALL)
# Above every number assigned, so that a local edit comes after the writes it builds on.
_EDIT_CLIENT = SAFE_INTEGER_MAX
_NUMBER_LAMPORT_MAX = 2**32 - 2
_NUMBER_ID_BITS = 21
_MERGE_GROUP = 64


class DocumentEngineError(AntiphonError):
    """The merging engine panicked on input that passed every check."""

    reason = "DOCUMENT_ENGINE_FAILED"
    next_step = "Rebuild the document from the log, and report the panic with the entry's id."


@dataclass(frozen=True, slots=True)
class Projection:
    """The content of the document as plain JSON data; ids are 64 lowercase hex digits.

    `annotations` maps an entry id to that entry's keys and values, `branches`
    a name to a seal id. Whole numbers up to 2**53 - 1 are ints, others floats.
    `void` maps each update that doesn't count to the reason.
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


def meta_set_by(author: PublicKey, key: str, updates: Iterable[Update]) -> Json:
    """Return the last value that `author` gave to a key of the metadata, None without one.

    A write of the value that stands already counts. One that loses against a concurrent write,
    which comes first in (lamport, id) order, is none.
    """
    document = Document()
    found: Json = None
    for update in sorted(updates, key=lambda one: one.order):
        if document.receive_meta(update, key) and update.lane.author == author:
            found = document.meta_value(key)
    return found


class Document:
    """A document that is updated entry by entry, in causal order, and edited locally."""

    def __init__(self, updates: Iterable[Update] = ()) -> None:
        """Build from the entries of the track, in any order; see `project`."""
        self._updates = {update.id: update for update in updates}
        self._fold, self._numbers, self._doc = _build(self._updates.values())
        self._projection: Projection | None = None

    @property
    def heads(self) -> tuple[EntryId, ...]:
        """The entries that none follows, sorted: the parents of the next entry."""
        return self._fold.heads

    @property
    def projection(self) -> Projection:
        """The current content; equal to `project` of the entries received."""
        if self._projection is None:
            self._projection = _read(self._doc, self._fold.void)
        return self._projection

    def meta_value(self, key: str) -> Json:
        """Return one value of the metadata, None without one; the document is not projected."""
        with _panics_typed():
            value = self._doc.get("meta", type=Map).get(key)
        return plain(value) if value is not None else None

    def receive(self, *updates: Update) -> None:
        """Add admitted entries, in causal order; a known entry changes nothing.

        Raises NotCausal if an ancestor is missing; add that first. A void update is
        no error: `projection.void` names it.
        """
        are_numbered = True
        for update in updates:
            if update.id in self._updates:
                continue
            checked = self._fold.receive(update)
            self._updates[update.id] = update
            self._projection = None
            if checked is None:
                continue
            are_numbered = are_numbered and self._numbers.insert(update)
            if are_numbered:
                with _panics_typed():
                    self._doc.apply_update(_renumbered(checked, self._numbers))
        if not are_numbered:  # once for all of them: ids can be made to leave no number free
            self._fold, self._numbers, self._doc = _build(self._updates.values())

    def receive_meta(self, update: Update, key: str) -> bool:
        """Add the next entry; say whether it wrote a key of the metadata."""
        written: set[str] = set()
        before = self.meta_value(key)
        with _panics_typed():
            root = self._doc.get("meta", type=Map)
            subscription = root.observe(lambda event: written.update(event.keys))
        self.receive(update)
        with _panics_typed():
            root.unobserve(subscription)
        return key in written or self.meta_value(key) != before

    def edit(self, lane: Lane) -> "Edit":
        """Begin an edit by `lane` on top of everything received so far."""
        return Edit(self, lane)


class Edit:
    """Writes to one document, encoded as one update.

    A later write to a key replaces an earlier one, which never enters the log.
    Keys and values are checked as they are set. Raises ValueRefused, NestingTooDeep.
    """

    def __init__(self, document: Document, lane: Lane) -> None:
        self._document = document
        self._lane = lane
        self._writes: dict[tuple[str, str], _Value | None] = {}

    def set_meta(self, key: str, value: Json) -> None:
        """Set `key` of the conversation's metadata, such as title, tags, archived."""
        self._writes["meta", plain_text(key)] = _Value(plain(value))

    def delete_meta(self, key: str) -> None:
        """Delete `key` of the conversation's metadata."""
        self._writes["meta", plain_text(key)] = None

    def set_branch(self, name: str, seal: EntryId) -> None:
        """Give the branch that ends in `seal`, 32 B, the name `name`."""
        self._writes["branches", plain_text(name)] = _Value(_hex(seal))

    def delete_branch(self, name: str) -> None:
        """Delete a branch name; the branch itself stays in the log."""
        self._writes["branches", plain_text(name)] = None

    def annotate(self, entry: EntryId, key: str, value: Json) -> None:
        """Set `key` among the annotations of `entry`; other keys are unchanged."""
        self._writes["annotations", _annotation_key(entry, key)] = _Value(plain(value))

    def delete_annotation(self, entry: EntryId, key: str) -> None:
        """Delete `key` among the annotations of `entry`."""
        self._writes["annotations", _annotation_key(entry, key)] = None

    def update(self) -> bytes:
        """Return the body of a DOCUMENT entry that makes these writes.

        The entry's parents must include the current `document.heads`. The document
        changes once that entry is passed to `receive`. EMPTY_UPDATE means that there
        is nothing to write. Raises UpdateTooLarge.
        """
        # Private attributes: an edit is part of its document.
        fold, numbers = self._document._fold, self._document._numbers
        captured, own = (
            decode_update(_captured(self._document._doc, self._writes)),
            client_id(self._lane),
        )
        clients = {
            client: entry_client(numbers.entry(client))
            for client in named_clients(captured) - {_EDIT_CLIENT}
        }
        nameless = {c for c, name in clients.items() if name == own or not fold.names_one(name)}
        captured = self._without(nameless, captured) if nameless else captured
        clients[_EDIT_CLIENT] = own
        data = encode_update(rename_clients(captured, clients))
        # The reader checks our own bytes too, so that a local edit is never void.
        fold.check(data, self._lane, own=EntryId(b""))
        return data

    def _without(self, nameless: Set[int], captured: DecodedUpdate) -> DecodedUpdate:
        """Return the captured update without the names of some clients.

        Ids of entries can be made to share a client id, which then names none of them (DOC-13).
        What was written on top of such an entry begins at the root: it comes after all other
        structs there, since the entry of this edit has the greatest number (spec/06 §4).
        """
        places = sorted(self._writes)
        kept = [place for place in places if self._writes[place] is not None]
        structs = [
            replace(item, origin=None, root=root, key=key) if _builds_on(item, nameless) else item
            for (root, key), item in zip(kept, captured.structs, strict=True)
        ]
        deletions = [one for one in captured.deletions if one.id.client not in nameless]
        # A deletion names a struct, but not its key. A write in its place has that as its origin.
        gone = [place for place in places if self._writes[place] is None]
        probe = decode_update(_captured(self._document._doc, dict.fromkeys(gone, _Value(None))))
        for (root, key), item in zip(gone, probe.structs, strict=True):
            if _builds_on(item, nameless):
                at = StructId(_EDIT_CLIENT, len(structs))
                structs.append(Struct(at, 1, Content.DELETED, varuint(1), root=root, key=key))
        return DecodedUpdate(tuple(structs), tuple(deletions))


@dataclass(frozen=True, slots=True)
class _Value:
    """A value to set, which may be null; None in its place means delete."""

    value: Json


class _Numbers:
    """Client numbers for pycrdt, ascending in (lamport, id) order."""

    def __init__(self) -> None:
        self.by_entry: dict[EntryId, int] = {}
        self._by_number: dict[int, EntryId] = {}
        self._order: list[tuple[int, EntryId]] = []

    def entry(self, number: int) -> EntryId:
        """Return the entry that has `number`."""
        return self._by_number[number]

    def append(self, update: Update) -> None:
        """Assign a number to `update`, which comes after all others."""
        last = self.by_entry[self._order[-1][1]] if self._order else 0
        self._keep(len(self._order), update, max(_number(update), last + 1))

    def insert(self, update: Update) -> bool:
        """Assign `update` a number in its order; return False if none is free."""
        at = bisect.bisect(self._order, update.order)
        number = _number(update)
        before = self.by_entry[self._order[at - 1][1]] if at else 0
        after = self.by_entry[self._order[at][1]] if at < len(self._order) else _EDIT_CLIENT
        if not before < number < after:
            return False
        self._keep(at, update, number)
        return True

    def _keep(self, at: int, update: Update, number: int) -> None:
        self._order.insert(at, update.order)
        self.by_entry[update.id] = number
        self._by_number[number] = update.id


def _number(update: Update) -> int:
    # Ascending in (lamport, id) but for ids with equal first bits. Only the order
    # matters, so replicas need not agree on the numbers.
    high = min(update.lamport, _NUMBER_LAMPORT_MAX)
    return high << _NUMBER_ID_BITS | int.from_bytes(update.id[:8], "big") >> (64 - _NUMBER_ID_BITS)


def _build(updates: Iterable[Update]) -> tuple[DocumentFold, _Numbers, "Doc[Any]"]:
    fold, numbers = DocumentFold(), _Numbers()
    renumbered = []
    for update in sorted({update.id: update for update in updates}.values(), key=_order):
        checked = fold.receive(update)
        if checked is not None:
            numbers.append(update)
            renumbered.append(_renumbered(checked, numbers))
    with _panics_typed():
        doc: Doc[Any] = Doc(client_id=_EDIT_CLIENT)
        if renumbered:
            # One merged update: updates applied one by one and out of order would lose values.
            doc.apply_update(_merged(renumbered))
    return fold, numbers, doc


def _merged(updates: list[bytes]) -> bytes:
    # In groups: one call for n updates takes quadratic time.
    while len(updates) > 1:
        groups = range(0, len(updates), _MERGE_GROUP)
        updates = [merge_updates(*updates[at : at + _MERGE_GROUP]) for at in groups]
    return updates[0]


def _order(update: Update) -> tuple[int, EntryId]:
    return update.order


def _renumbered(checked: CheckedUpdate, numbers: _Numbers) -> bytes:
    clients = {client: numbers.by_entry[owner] for client, owner in checked.owners.items()}
    return encode_update(rename_clients(checked.decoded, clients))


def _captured(doc: "Doc[Any]", writes: Mapping[tuple[str, str], _Value | None]) -> bytes:
    # In a copy, so that an edit that never becomes an entry changes nothing. By
    # capture, since a diff would contain structs and deletions of others.
    captured: list[bytes] = []

    def capture(event: TransactionEvent) -> None:
        captured.append(event.update)

    with _panics_typed():
        copy: Doc[Any] = Doc(client_id=_EDIT_CLIENT)
        copy.apply_update(doc.get_update())
        roots = {root: copy.get(root, type=Map) for root in ROOTS}
        subscription = copy.observe(capture)
        with copy.transaction():
            for (root, key), write in sorted(writes.items(), key=lambda item: item[0]):
                _write(roots[root], key, write)
        copy.unobserve(subscription)
        return merge_updates(*captured) if captured else EMPTY_UPDATE


def _builds_on(item: Struct, clients: Set[int]) -> bool:
    return item.origin is not None and item.origin.client in clients


def _write(root: "Map[Any]", key: str, write: _Value | None) -> None:
    if write is not None:
        root[key] = write.value
    elif key in root:
        del root[key]


def _read(doc: "Doc[Any]", void: Mapping[EntryId, str]) -> Projection:
    with _panics_typed():
        # Sorted, since pycrdt returns the keys in varying order.
        raw = {root: sorted((doc.get(root, type=Map).to_py() or {}).items()) for root in ROOTS}
    meta = {key: plain(value) for key, value in raw["meta"]}
    branches = {
        name: seal
        for name, seal in raw["branches"]
        if isinstance(seal, str) and _ENTRY_HEX.fullmatch(seal)
    }
    annotations: dict[str, dict[str, Json]] = {}
    for composed, value in raw["annotations"]:
        if named := _ANNOTATION_KEY.fullmatch(composed):
            annotations.setdefault(named[1], {})[named[2]] = plain(value)
    content: Json = {"annotations": annotations, "branches": branches, "meta": meta}
    digest = tagged_sha256(PROJECTION_TAG, canonical_json(content))
    return Projection(meta, branches, annotations, digest, dict(void))


def _hex(entry: EntryId) -> str:
    if len(entry) != ID_BYTES:
        raise ValueRefused(f"An entry id has {ID_BYTES} bytes, not {len(entry)}.")
    return entry.hex()


def _annotation_key(entry: EntryId, key: str) -> str:
    if not plain_text(key):
        raise ValueRefused("The key of an annotation is empty.")
    return f"{_hex(entry)}/{key}"


@contextmanager
def _panics_typed() -> Iterator[None]:
    # A panic of pycrdt is not an Exception: untyped, it would escape every handler.
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise DocumentEngineError(f"pycrdt panicked: {error}") from error
