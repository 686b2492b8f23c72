"""The place of a message in place of another (DECISIONS D499)."""

from replica.conversation.instead import place_instead_of
from replica.conversation.place import Place, newest_place
from replica.log.body import Cancel
from replica.log.entry import Conflict, Entry
from tests.replica.order.turn import Turn
from tests.support.stories import answer
from tests.support.writers import said


def asked(turn: Turn, words: str, *parents: Entry, basis: Entry | None) -> tuple[Entry, Entry]:
    """Write a message and its request."""
    message = turn.admit(turn.ada.write(turn.held.id, said(words), parents=parents, basis=basis))
    return message, turn.request(message, basis=basis)


def test_in_place_of_an_answered_question_it_follows_the_answer_before() -> None:
    turn = Turn()
    first = Place((turn.genesis.id,), None, Conflict.FORK)
    assert place_instead_of(turn.held, turn.hello.id) == first
    message, request = asked(turn, "and?", turn.answer, basis=turn.seal)
    turn.sealed(request, [turn.answer, message, request], turn.seal)
    place = place_instead_of(turn.held, message.id)
    assert place == Place((turn.answer.id,), turn.seal.id, Conflict.FORK)


def test_in_place_of_a_queued_question_it_follows_the_answer_that_came_meanwhile() -> None:
    turn = Turn()
    second = turn.request(turn.say("second", turn.answer), basis=turn.seal)
    message, request = asked(turn, "oops", second, basis=turn.seal)
    waiting = place_instead_of(turn.held, message.id)
    assert waiting == Place((second.id,), turn.seal.id, Conflict.QUEUE)
    entries = turn.held.log.entries
    listed = [turn.answer, *(entries[i] for i in second.header.parents), second]
    seal = turn.sealed(second, listed, turn.seal)
    assert place_instead_of(turn.held, message.id).conflict is Conflict.QUEUE
    came = turn.admit(turn.hal.write(turn.held.id, answer(), parents=[seal], basis=seal))
    behind = Place((came.id,), seal.id, Conflict.FORK)
    assert place_instead_of(turn.held, message.id) == behind
    turn.sealed(request, [came, message, request], seal)
    assert place_instead_of(turn.held, message.id) == behind


def test_a_message_with_a_cancelled_fork_behind_it_is_in_no_later_context() -> None:
    turn = Turn()
    message, request = asked(turn, "oops", turn.answer, basis=turn.seal)
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[request]))
    place = place_instead_of(turn.held, message.id)
    right, again = asked(turn, "right", turn.answer, basis=turn.seal)
    seal = turn.sealed(again, [turn.answer, right, again], turn.seal)
    assert place == Place((turn.answer.id,), turn.seal.id, Conflict.FORK)
    turn.admit(turn.hal.write(turn.held.id, answer(), parents=[seal], basis=seal))
    assert message.id in newest_place(turn.held).parents  # it is late
    body = turn.held.log.body(request.id)
    assert body is not None
    fork = turn.admit(
        turn.ada.write(
            turn.held.id, body, parents=[request], basis=turn.seal, conflict=Conflict.FORK
        )
    )
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[fork]))
    assert newest_place(turn.held).parents == (turn.held.order.nodes[seal.id].generation,)
