"""The checks of admission on one entry and the entries it names (spec/02-entry §6).

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


def check_contents(
    entry: Entry, *, verified: bool, turn: Callable[[], object] | None = None
) -> tuple[EntryId, ...]:
    """Check an entry alone, steps 4 to 6; return the ids it names.

    The signature of a pending entry is verified too, so that nobody can fill the
    buffer in another's name. `verified` skips signature and body digest. `turn` is called
    for each field of the body.
    """
    if not verified:
        verify_signature(entry)
        verify_body(entry)
    body = _control_body(entry, turn)
    if entry.header.kind == Kind.GENESIS:
        assert isinstance(body, Genesis), "a genesis is a control entry"
        if body.owners[0] != entry.header.author:
            raise GenesisInvalid("the author of the genesis is its first owner")
    return (*entry.header.ancestors(), *listed_ids(body))


def check_ancestors(entry: Entry, header_of: Callable[[EntryId], Header]) -> None:
    """Check an entry against the headers of all entries it names: step 8."""
    header = entry.header
    if header.kind == Kind.GENESIS:
        return
    for parent in map(header_of, header.parents):
        if parent.track not in (header.track, Track.ALL):
            raise ParentInvalid(f"a parent is on track {parent.track}")
    if header.prev is not None:
        prev = header_of(header.prev)
        lane = (prev.author, prev.epoch, prev.track)
        if lane != (header.author, header.epoch, header.track):
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
    """Return a known entry with the body of `entry`; None if it lacks none or none came.

    A body may come later than its entry; header and signature never change.
    Raises BodyDigestMismatch.
    """
    if known.body is not None or entry.body is None:
        return None
    whole = replace(known, body=entry.body)
    verify_body(whole)
    return whole


def _control_body(entry: Entry, turn: Callable[[], object] | None = None) -> Body | None:
    if entry.header.kind not in CONTROL_KINDS:
        return None
    if entry.body is None:
        raise BodyMissing
    return decode_body(entry.header.kind, entry.body, turn)
