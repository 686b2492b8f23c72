"""Rows of the store, checked against their own digests (spec/04-link §10).

Pure. Each column is checked before it is used: the header by the entry's id,
the signature by a checksum, the body by the digest in the header, the keys by
the header. Damage is reported with the entry's id where possible, so that the
entry can be requested again. Whole entries are quarantined (DECISIONS D77), and
a row is sound if its author signed the header (DECISIONS D79).
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from replica.errors import EntryRefused
from replica.ids import ID_BYTES, SIGNATURE_BYTES, ConversationId, EntryId
from replica.log import (
    CONTROL_KINDS,
    MEMBERSHIP_TRACKS,
    Entry,
    Lost,
    codec,
    entry_id,
    verify_body,
    verify_signature,
)

ENTRY, LISTED, QUARANTINED = range(3)
"""Sorts of rows, as `statements.SELECT` numbers them: entries, listed ids, quarantined ids."""

Row = tuple[Any, ...]
"""Sort, rowid, id, header, signature, checksum, body; of the latter sorts id and checksum."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row, or its body alone, to be quarantined."""

    row: Row
    id: bytes
    """The entry's id, as far as it can be read."""
    body_only: bool
    why: str


@dataclass(frozen=True, slots=True)
class Examined:
    """The rows of one conversation, sorted by their state."""

    sound: list[Entry]
    """In (lamport, id) order; a body that failed its digest is None."""
    misfiled: list[tuple[Row, Entry]]
    """Sound entries in rows whose keys or checksum are damaged."""
    unlisted: list[Entry]
    """Sound membership entries whose listing is damaged."""
    bad: list[BadRow]
    strays: int
    """Number of misfiled entries of other conversations."""
    gone: frozenset[EntryId]
    """Ids that must be stored and have no row, not even a damaged one."""
    lost: Lost

    @property
    def is_clean(self) -> bool:
        """Say whether no row needs a repair."""
        return not (self.misfiled or self.unlisted or self.bad or self.gone)


def checksum_of(*parts: bytes) -> int:
    """Return the CRC-32 that protects columns without a digest."""
    return zlib.crc32(b"".join(parts))


def is_noted(conversation: object, id_: object, checksum: object) -> bool:
    """Say whether a quarantined row still has the keys it was given.

    Else a peer would be asked for an entry that never was, for ever. The row of an earlier
    version has no checksum.
    """
    if not isinstance(conversation, bytes) or not isinstance(id_, bytes):
        return False
    return checksum is None or checksum == checksum_of(conversation, id_)


def is_listed(entry: Entry) -> bool:
    """Say whether the store lists an entry's id a second time, so that its loss is noticed."""
    return entry.header.track in MEMBERSHIP_TRACKS


def examine(
    conversation: ConversationId, rows: Iterable[Row], *, with_bodies: bool = True
) -> Examined:
    """Separate the sound rows of one conversation from the damaged ones.

    Without bodies, that column says whether there is a body; the entries have none then,
    and their bodies are not checked.
    """
    found = _Found()
    for row in rows:
        sort, _, id_, *_, checksum, _ = row
        if sort == QUARANTINED:
            if is_noted(conversation, id_, checksum):
                found.quarantined.append(id_)
        elif sort == ENTRY:
            _examine_entry(conversation, row, found, with_bodies=with_bodies)
        elif isinstance(id_, bytes) and checksum_of(conversation, id_) == checksum:
            found.listed.add(EntryId(id_))
    return found.judge()


@dataclass(slots=True)
class _Found:
    """Rows collected so far."""

    entries: dict[EntryId, Entry] = field(default_factory=dict)
    misfiled: list[tuple[Row, Entry]] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    quarantined: list[bytes] = field(default_factory=list)
    listed: set[EntryId] = field(default_factory=set)

    def judge(self) -> Examined:
        here = self.entries.keys()
        ids = (*self.quarantined, *(bad.id for bad in self.bad if not bad.body_only))
        known_lost = {EntryId(i) for i in ids if len(i) == ID_BYTES} - here
        # Only admitted entries are stored, so the entries they name were stored, too.
        named = {i for entry in self.entries.values() for i in entry.header.ancestors()}
        gone = frozenset((named | self.listed) - here - known_lost)
        return Examined(
            sorted(self.entries.values(), key=lambda entry: entry.order_key),
            self.misfiled,
            [e for e in self.entries.values() if is_listed(e) and e.id not in self.listed],
            self.bad,
            sum(entry.id not in here for _, entry in self.misfiled),
            gone,
            Lost(gone | known_lost, frozenset(self.listed - here)),
        )


def _examine_entry(
    conversation: ConversationId, row: Row, out: _Found, *, with_bodies: bool
) -> None:
    _, _, id_, header, signature, _, body = row
    is_misfiled = False
    try:
        entry = _filed(conversation, row)
    except (EntryRefused, _Damaged) as error:
        found = _signed(header, signature)
        if found is None:
            known = id_ if isinstance(id_, bytes) else b""
            out.bad.append(BadRow(row, known, body_only=False, why=str(error)))
            return
        entry, is_misfiled = found, True
    try:
        entry = _with_body(entry, body) if with_bodies else entry
    except (EntryRefused, _Damaged) as error:
        # A control entry without its body decides nothing, so it is lost as a whole.
        body_only = entry.header.kind not in CONTROL_KINDS and not is_misfiled
        out.bad.append(BadRow(row, entry.id, body_only, str(error)))
        if not body_only:
            return
    if is_misfiled:
        out.misfiled.append((row, entry))
    if entry.conversation == conversation:
        out.entries[entry.id] = entry


class _Damaged(Exception):
    """A column differs from the value written."""


def _filed(conversation: ConversationId, row: Row) -> Entry:
    """Return the entry without its body. Raises _Damaged."""
    _, _, id_, header, signature, checksum, _ = row
    if not isinstance(header, bytes) or not isinstance(signature, bytes):
        raise _Damaged("header or signature is not bytes")
    if entry_id(header) != id_:
        raise _Damaged("the header does not have the digest it is stored under")
    if len(signature) != SIGNATURE_BYTES or checksum_of(signature) != checksum:
        raise _Damaged("the signature does not have its checksum")
    entry = codec.decode_entry(header, signature, None)
    if entry.conversation != conversation:
        raise _Damaged("the header names another conversation")
    return entry


def _signed(header: Any, signature: Any) -> Entry | None:
    """Return the entry of a row with wrong keys if its author signed the header, else None."""
    if not isinstance(header, bytes) or not isinstance(signature, bytes):
        return None
    try:
        entry = codec.decode_entry(header, signature, None)
        verify_signature(entry)
    except EntryRefused:
        return None  # the header or the signature is damaged
    return entry


def _with_body(entry: Entry, body: Any) -> Entry:
    if not isinstance(body, bytes | None):
        raise _Damaged("the body is not bytes")
    if body is None and entry.header.kind in CONTROL_KINDS:
        raise _Damaged("a control entry has lost its body")
    whole = Entry(entry.header_bytes, entry.signature, body, entry.id, entry.header)
    verify_body(whole)
    return whole
