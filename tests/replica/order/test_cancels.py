"""CANCEL entries: the requests they end, and those they close (spec/03-order §3)."""

from replica.log.body import Cancel, Role
from replica.order.cancels import Cancels
from tests.replica.order.turn import Turn
from tests.support.writers import Writer


def test_a_cancel_counts_while_its_author_may_write_it() -> None:
    turn, reader = Turn(), Writer(3)
    granted = turn.grant(reader, Role.READER, turn.genesis)
    cancel = turn.admit(reader.write(turn.held.id, Cancel(), parents=[turn.ask]))
    assert not turn.held.log.membership.is_visible(cancel)
    assert not turn.held.order.is_cancelled(turn.ask.id)
    turn.grant(reader, Role.WRITER, granted)
    assert turn.held.order.is_cancelled(turn.ask.id)


def test_a_cancel_ends_the_one_request_that_is_its_only_parent() -> None:
    turn = Turn()
    second = turn.request(turn.hello)
    both = sorted([turn.ask, second], key=lambda e: e.id)
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=both))
    order = turn.held.order
    assert not order.is_cancelled(turn.ask.id)
    assert not order.is_cancelled(second.id)
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[second]))
    assert order.is_cancelled(second.id)
    assert not order.is_cancelled(turn.ask.id)


def test_a_cancel_by_the_requester_or_an_owner_closes_the_request() -> None:
    turn, bob = Turn(), Writer(3)
    turn.grant(bob, Role.WRITER, turn.genesis)
    body = turn.held.log.body(turn.ask.id)
    assert body is not None
    asked = turn.admit(bob.write(turn.held.id, body, parents=[turn.answer], basis=turn.seal))
    owners = turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[asked]))
    own = turn.admit(bob.write(turn.held.id, Cancel(), parents=[asked]))
    found = sorted([owners, own], key=lambda e: e.order_key)
    assert turn.held.order.closing_cancels(asked.id) == tuple(e.id for e in found)


def test_a_cancel_by_another_writer_ends_a_request_and_does_not_close_it() -> None:
    turn, bob = Turn(), Writer(3)
    turn.grant(bob, Role.WRITER, turn.genesis)
    turn.admit(bob.write(turn.held.id, Cancel(), parents=[turn.ask]))
    assert turn.held.order.is_cancelled(turn.ask.id)
    assert turn.held.order.closing_cancels(turn.ask.id) == ()


def test_a_request_without_a_cancel_is_neither_ended_nor_closed() -> None:
    turn, cancels = Turn(), Cancels()
    membership = turn.held.log.membership
    assert not cancels.is_cancelled(turn.ask.id, membership)
    assert cancels.closing_cancels(turn.ask, membership) == ()
