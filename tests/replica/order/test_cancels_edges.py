"""CANCEL entries: the requests they end, and those they close (spec/03-order §3)."""

import pytest

from replica.ids import EntryId, PublicKey
from replica.log.body import Cancel, Role
from replica.log.entry import Entry
from replica.log.members import Membership
from replica.order.cancels import Cancels
from tests.support.sample import Sample
from tests.support.writers import Writer

OWNER, BOB, EVE, HAL = Writer(1), Writer(2), Writer(3), Writer(4)
ROLES = {OWNER: Role.OWNER, BOB: Role.WRITER, EVE: Role.WRITER, HAL: Role.HOST}


def _membership(kept: dict[PublicKey, frozenset[EntryId]] | None = None) -> Membership:
    roles = {writer.public: frozenset([role]) for writer, role in ROLES.items()}
    return Membership(roles, kept=kept or {})


@pytest.fixture
def request_() -> Entry:
    """A request that BOB wrote."""
    sample = Sample()
    for writer in (BOB, EVE, HAL):
        sample.grant(writer, ROLES[writer])
    sample.owner = BOB.restored()
    return sample.ask(HAL, sample.genesis)


def _cancel(request: Entry, *writers: Writer) -> tuple[Cancels, list[Entry]]:
    cancels, entries = Cancels(), []
    for writer in writers:
        last = writer.restored()
        entries.append(last.write(request.conversation, Cancel(), parents=[request]))
        cancels.receive(entries[-1])
    return cancels, entries


@pytest.mark.parametrize(("writer", "closes"), [(BOB, True), (OWNER, True), (EVE, False)])
def test_the_requester_and_owners_close_a_request_and_every_writer_ends_it(
    request_: Entry, writer: Writer, closes: bool
) -> None:
    cancels, entries = _cancel(request_, writer)
    closing = cancels.closing_cancels(request_, _membership())
    assert closing == ((entries[0].id,) if closes else ())
    assert cancels.is_cancelled(request_.id, _membership())


def test_a_cancel_behind_a_cut_ends_and_closes_nothing(request_: Entry) -> None:
    cancels, entries = _cancel(request_, BOB)
    cut = _membership({BOB.public: frozenset([request_.id])})
    assert cancels.closing_cancels(request_, cut) == ()
    assert not cancels.is_cancelled(request_.id, cut)
    kept = _membership({BOB.public: frozenset([entries[0].id])})
    assert cancels.closing_cancels(request_, kept) == (entries[0].id,)


def test_a_host_closes_no_request_of_another(request_: Entry) -> None:
    cancels, _ = _cancel(request_, HAL)
    assert cancels.closing_cancels(request_, _membership()) == ()


def test_closing_cancels_are_in_the_canonical_order_whatever_that_of_arrival(
    request_: Entry,
) -> None:
    _, entries = _cancel(request_, BOB, OWNER)
    for arrival in (entries, entries[::-1]):
        cancels = Cancels()
        for entry in arrival:
            cancels.receive(entry)
        expected = tuple(e.id for e in sorted(entries, key=lambda e: e.order_key))
        assert cancels.closing_cancels(request_, _membership()) == expected
