"""The checks of admission that look at one entry and what it names (spec/02-entry §6).

Pure, and private to admission.py. Each raises the EntryRefused of the first
rule the entry breaks.
"""

from collections.abc import Callable
from dataclasses import replace

from replica.ids import EntryId, Track
from replica.log.body import Body, Genesis, listed_ids
from replica.log.codec import decode_body
from replica.log.entry import Entry, Header, verify_body, verify_signature
from replica.log.kinds import CONTROL_KINDS, Kind
from replica.refusals import (
    BasisInvalid,
    BodyMissing,
    GenesisInvalid,
    LamportInvalid,
    ParentInvalid,
    PrevInvalid,
    SeqGap,
)


def check_contents(entry: Entry, *, verified: bool) -> tuple[EntryId, ...]:
    """Check what can be checked without any other entry: steps 4 to 6. Return its names.

    The signature is verified even for what must wait, so nobody fills the
    buffer in another's name. `verified` leaves it out, and the body's digest; an
    entry marked `is_verified` keeps the digest's check.
    """
    if not verified:
        if not entry.is_verified:
            verify_signature(entry)
        verify_body(entry)
    body = _control_body(entry)
    if entry.header.kind == Kind.GENESIS:
        assert isinstance(body, Genesis), "a genesis is a control entry"
        if body.owners[0] != entry.header.author:
            raise GenesisInvalid("the author of the genesis is its first owner")
    return (*entry.header.ancestors(), *listed_ids(body))


def check_place(entry: Entry, header_of: Callable[[EntryId], Header]) -> None:
    """Check an entry against all it names, whose headers are known by now: step 8."""
    header = entry.header
    if header.kind == Kind.GENESIS:
        return
    for parent in map(header_of, header.parents):
        if parent.track not in (header.track, Track.ALL):
            raise ParentInvalid(f"a parent is on track {parent.track}")
    if header.prev is not None:
        prev = header_of(header.prev)
        if prev.lane != header.lane:
            raise PrevInvalid
        if prev.seq != header.seq - 1:
            raise SeqGap(f"seq {header.seq} follows seq {prev.seq}")
    if header.basis is not None:
        basis = header_of(header.basis)
        if basis.kind != Kind.SEAL or header.track != Track.CONVERSATION:
            raise BasisInvalid
    named = (*header.ancestors(), *listed_ids(_control_body(entry)))
    lamport = 1 + max(header_of(i).lamport for i in named)
    if header.lamport != lamport:
        raise LamportInvalid(f"lamport is {header.lamport}, must be {lamport}")


def filled(known: Entry, entry: Entry) -> Entry | None:
    """Return a known entry with the body that came for it; None where it needs none.

    The body may come later; header and signature never change.
    """
    if known.body is not None or entry.body is None:
        return None
    whole = replace(known, body=entry.body)
    verify_body(whole)
    return whole


def _control_body(entry: Entry) -> Body | None:
    if entry.header.kind not in CONTROL_KINDS:
        return None
    if entry.body is None:
        raise BodyMissing
    return decode_body(entry.header.kind, entry.body)
