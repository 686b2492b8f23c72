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


def forking(turn: Turn, after: Entry, basis: Entry | None) -> Entry:
    """Write a request that forks."""
    body = turn.held.log.body(turn.ask.id)
    assert body is not None
    more = {"parents": [after], "basis": basis, "conflict": Conflict.FORK}
    return turn.admit(turn.ada.write(turn.held.id, body, **more))


def cancelled(turn: Turn, request: Entry) -> Entry:
    """Cancel a request."""
    return turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[request]))


def test_in_place_of_a_question_that_forked_it_forks_from_the_same_place() -> None:
    turn = Turn()
    first, request = asked(turn, "first", turn.answer, basis=turn.seal)
    words = turn.ada.write(turn.held.id, said("rather"), parents=[turn.answer], basis=turn.seal)
    forks = forking(turn, turn.admit(words), turn.seal)
    cancelled(turn, forking(turn, cancelled(turn, forks), turn.seal))
    place = Place((turn.answer.id,), turn.seal.id, Conflict.FORK)
    assert place_instead_of(turn.held, words.id) == place
    turn.sealed(request, [turn.answer, first, request], turn.seal)
    assert place_instead_of(turn.held, words.id) == place


def test_in_place_of_a_message_without_a_question_it_queues_behind_what_was_asked_since() -> None:
    turn = Turn()
    first, request = asked(turn, "first", turn.answer, basis=turn.seal)
    words = turn.ada.write(turn.held.id, said("alone"), parents=[turn.answer], basis=turn.seal)
    cancelled(turn, forking(turn, turn.admit(words), turn.seal))
    seal = turn.sealed(request, [turn.answer, first, request], turn.seal)
    place = place_instead_of(turn.held, words.id)
    assert (place.basis, place.conflict) == (seal.id, Conflict.QUEUE)


def test_another_answer_asked_for_with_a_fork_changes_nothing_for_what_was_queued() -> None:
    turn = Turn()
    first, request = asked(turn, "first", turn.answer, basis=turn.seal)
    words, queued = asked(turn, "typo", request, basis=turn.seal)
    cancelled(turn, forking(turn, words, turn.seal))
    cancelled(turn, forking(turn, cancelled(turn, queued), turn.seal))
    place = place_instead_of(turn.held, words.id)
    assert place == Place((request.id,), turn.seal.id, Conflict.QUEUE)
    assert first.id in turn.held.log.entries[request.id].header.parents


def test_in_place_of_another_members_fork_it_forks_from_the_same_place_too() -> None:
    turn = Turn()
    first, request = asked(turn, "first", turn.answer, basis=turn.seal)
    turn.sealed(request, [turn.answer, first, request], turn.seal)
    words = turn.ada.write(turn.held.id, said("rather"), parents=[turn.answer], basis=turn.seal)
    forking(turn, turn.admit(words), turn.seal)
    place = Place((turn.answer.id,), turn.seal.id, Conflict.FORK)
    assert place_instead_of(turn.held, words.id) == place
