"""Each check of admission, on one entry and the headers of the entries it names."""

from dataclasses import replace

import pytest

from replica.errors import EntryRefused
from replica.ids import EntryId, Track
from replica.log.body import Grant, Member, Role
from replica.log.checks import check_ancestors, check_contents, filled
from replica.log.entry import Entry, Header
from replica.log.kinds import Kind
from replica.refusals import (
    BasisInvalid,
    BodyDigestMismatch,
    BodyMalformed,
    BodyMissing,
    GenesisInvalid,
    LamportInvalid,
    ParentInvalid,
    PrevInvalid,
    SeqGap,
    SignatureInvalid,
)
from tests.support.writers import Writer, said

ADA, BOB = Writer(1), Writer(2)
GENESIS = ADA.genesis()
ID = GENESIS.conversation
GRANT = ADA.write(ID, Member(Grant(BOB.public, Role.WRITER)), parents=[GENESIS])
FIRST = ADA.write(ID, said("one"), parents=[GENESIS])
SECOND = ADA.write(ID, said("two"), parents=[FIRST])
HEADERS = {entry.id: entry.header for entry in (GENESIS, GRANT, FIRST, SECOND)}


def moved(**changes: object) -> Entry:
    """Return SECOND with another header, unsigned."""
    return replace(SECOND, header=replace(SECOND.header, **changes))


def bodied(entry: Entry, body: bytes | None) -> Entry:
    return replace(entry, body=body)


def test_an_entry_that_fits_its_ancestors_passes() -> None:
    for entry in (GENESIS, GRANT, FIRST, SECOND):
        check_contents(entry, verified=False)
        check_ancestors(entry, HEADERS.__getitem__)


@pytest.mark.parametrize(
    ("entry", "refusal"),
    [
        (moved(parents=(GRANT.id,)), ParentInvalid),
        (moved(prev=GRANT.id), PrevInvalid),
        (moved(seq=2), SeqGap),
        (moved(basis=FIRST.id), BasisInvalid),
        (moved(lamport=SECOND.header.lamport + 1), LamportInvalid),
        (moved(lamport=SECOND.header.lamport - 1), LamportInvalid),
    ],
    ids=lambda value: getattr(value, "reason", ""),
)
def test_an_entry_that_does_not_fit_its_ancestors_is_refused(
    entry: Entry, refusal: type[EntryRefused]
) -> None:
    with pytest.raises(refusal):
        check_ancestors(entry, HEADERS.__getitem__)


def test_a_seal_is_a_basis_on_the_conversation_track_alone() -> None:
    seal = replace(FIRST.header, kind=Kind.SEAL, track=Track.CONVERSATION)
    headers: dict[EntryId, Header] = {**HEADERS, FIRST.id: seal}
    check_ancestors(moved(basis=FIRST.id), headers.__getitem__)
    elsewhere = replace(
        GRANT, header=replace(GRANT.header, basis=FIRST.id, lamport=seal.lamport + 1)
    )
    with pytest.raises(BasisInvalid):
        check_ancestors(elsewhere, headers.__getitem__)


@pytest.mark.parametrize(
    ("entry", "refusal"),
    [
        (replace(FIRST, signature=bytes(64)), SignatureInvalid),
        (bodied(FIRST, (FIRST.body or b"")[:-1] + b"?"), BodyDigestMismatch),
        (bodied(GRANT, None), BodyMissing),
    ],
    ids=lambda value: getattr(value, "reason", ""),
)
def test_contents_that_break_a_rule_are_refused(entry: Entry, refusal: type[EntryRefused]) -> None:
    with pytest.raises(refusal):
        check_contents(entry, verified=False)


def test_an_entry_verified_before_is_still_parsed() -> None:
    check_contents(replace(FIRST, signature=bytes(64)), verified=True)
    with pytest.raises(BodyMalformed):
        check_contents(bodied(GRANT, b"\xff" * 17), verified=True)


def test_a_genesis_names_its_author_first() -> None:
    foreign = ADA.genesis([BOB.public, ADA.public])
    with pytest.raises(GenesisInvalid):
        check_contents(foreign, verified=False)
    assert check_contents(ADA.genesis([ADA.public, BOB.public]), verified=False) == ()


def test_contents_yield_the_ids_an_entry_names() -> None:
    assert set(check_contents(SECOND, verified=False)) == {FIRST.id}
    assert set(check_contents(GRANT, verified=False)) == {GENESIS.id}


@pytest.mark.parametrize(
    ("known", "came"),
    [(FIRST, FIRST), (bodied(FIRST, None), bodied(FIRST, None)), (FIRST, bodied(FIRST, None))],
)
def test_nothing_is_filled_where_nothing_is_missing(known: Entry, came: Entry) -> None:
    assert filled(known, came) is None


def test_a_missing_body_is_filled_by_the_right_one_alone() -> None:
    bare = bodied(FIRST, None)
    assert filled(bare, FIRST) == FIRST
    with pytest.raises(BodyDigestMismatch):
        filled(bare, bodied(FIRST, SECOND.body))
