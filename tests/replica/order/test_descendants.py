"""A tail holds the unsealed entries that descend from its start (ORD-10)."""

from replica.log.body import Role
from replica.order.descendants import descendants
from tests.replica.order.turn import Turn
from tests.support.writers import Writer


def test_sealed_entries_and_seals_end_a_way_and_other_tracks_are_none() -> None:
    turn = Turn()
    order = turn.held.order
    behind = turn.say("behind the answer", turn.answer)
    turn.grant(Writer(3), Role.WRITER, turn.genesis)
    assert descendants(order, turn.answer.id) == {behind.id}
    assert descendants(order, turn.ask.id) == set()  # its one child is its seal
    assert descendants(order, turn.hello.id) == set()  # its one child is sealed
    meanwhile = turn.say("behind the question", turn.ask)
    last = turn.say("behind both", meanwhile, behind)
    assert descendants(order, turn.ask.id) == {meanwhile.id, last.id}
    assert descendants(order, turn.answer.id) == {behind.id, last.id}
