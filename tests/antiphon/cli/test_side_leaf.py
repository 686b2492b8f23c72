"""An answer is a side leaf where its branch goes on without it."""

from antiphon.cli.rows import SIDE_LEAF, row_of
from replica.log.body import Cancel, Text
from replica.log.entry import Conflict
from tests.replica.order.turn import Turn
from tests.support.stories import answer
from tests.support.turns import Turns


def test_a_fork_that_was_written_during_an_answer_makes_it_no_side_leaf() -> None:
    """What is said next still follows the answer."""
    turns = Turns()
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    request = turns.ask(turns.owner, said)
    reply = turns.answer(request, Text("Hello."))
    seal = turns.entry(reply.header.parents[0])
    beside = turns.say(turns.writer, "Rather.", request)
    turns.answer(turns.ask(turns.writer, beside, basis=seal, conflict=Conflict.FORK), Text("Yes."))
    assert SIDE_LEAF not in row_of(turns.held, reply).note


def test_an_answer_that_a_queued_turn_went_past_is_a_side_leaf() -> None:
    turn = Turn()
    said = turn.say("More.", turn.answer)
    request = turn.request(said, basis=turn.seal)
    seal = turn.sealed(request, [turn.answer, said, request], turn.seal)
    closing = turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[request]))
    over = turn.request(closing, basis=seal)
    turn.sealed(over, [over], seal)
    late = turn.admit(turn.hal.write(turn.held.id, answer(), parents=[seal], basis=seal))
    assert SIDE_LEAF in row_of(turn.held, late).note
    assert SIDE_LEAF not in row_of(turn.held, turn.answer).note
