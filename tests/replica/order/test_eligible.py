"""The entries that may be in a tail, and requests that are open (spec/03-order §3, ORD-10)."""

from replica.log.body import Cancel, Member, Revocation, Role
from replica.order.eligible import is_open, is_tail_entry
from tests.replica.order.turn import Turn
from tests.support.stories import answer
from tests.support.writers import Writer, said


def test_what_a_revoked_key_wrote_without_a_cut_is_not_said() -> None:
    turn, bob = Turn(), Writer(3)
    granted = turn.grant(bob, Role.WRITER, turn.genesis)
    word = turn.admit(bob.write(turn.held.id, said("hm"), parents=[turn.answer]))
    assert is_tail_entry(turn.held.log, word)
    revocation = Member(Revocation(bob.public))
    turn.admit(turn.ada.write(turn.held.id, revocation, parents=[granted]))
    assert not is_tail_entry(turn.held.log, word)


def test_a_request_is_open_until_it_is_refused_or_closed() -> None:
    turn = Turn()
    closed, refused = (turn.request(turn.answer, basis=turn.seal) for _ in range(2))
    assert is_open(turn.held.order, closed)
    assert is_open(turn.held.order, refused)
    assert not is_open(turn.held.order, turn.hello)
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[closed]))
    turn.admit(turn.hal.write(turn.held.id, answer(), parents=[refused]))
    assert not is_open(turn.held.order, closed)
    assert not is_open(turn.held.order, refused)
