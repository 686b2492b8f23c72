"""An answer is a side leaf where its branch goes on without it."""

from antiphon.cli.views.rows import SIDE_LEAF, row_of
from replica.log.body import Cancel
from tests.replica.order.turn import Turn
from tests.support.stories import answer


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
