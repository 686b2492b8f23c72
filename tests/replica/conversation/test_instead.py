"""The place of a message in place of another (DECISIONS D499)."""

from replica.conversation.instead import place_instead_of
from replica.conversation.next_seal import seal_by_coverage, sealable
from replica.conversation.place import Place, newest_place
from replica.log.body import Cancel
from replica.log.entry import Conflict, Entry
from replica.order import with_withdrawals
from tests.replica.order.turn import Turn
from tests.support.stories import answer
from tests.support.writers import said


def asked(turn: Turn, words: str, *parents: Entry, basis: Entry | None) -> tuple[Entry, Entry]:
    """Write a message and its request."""
    message = turn.admit(turn.ada.write(turn.held.id, said(words), parents=parents, basis=basis))
    node = turn.held.order.nodes[basis.id] if basis is not None else None
    follows = with_withdrawals(turn.held.order, (message.id,), node)  # as an Author does
    return message, turn.request(*map(turn.of, sorted(follows)), basis=basis)


def test_in_place_of_an_answered_question_it_follows_the_answer_before() -> None:
    turn = Turn()
    first = Place((turn.genesis.id,), None, Conflict.FORK)
    assert place_instead_of(turn.held, turn.hello.id) == first
    message, request = asked(turn, "and?", turn.answer, basis=turn.seal)
    turn.sealed(request, [turn.answer, message, request], turn.seal)
    place = place_instead_of(turn.held, message.id)
    assert place == Place((turn.answer.id,), turn.seal.id, Conflict.FORK)


def forking(turn: Turn, after: Entry, basis: Entry | None) -> Entry:
    """Write a request that forks."""
    body = turn.held.log.body(turn.ask.id)
    assert body is not None
    more = {"parents": [after], "basis": basis, "conflict": Conflict.FORK}
    return turn.admit(turn.ada.write(turn.held.id, body, **more))


def cancelled(turn: Turn, request: Entry) -> Entry:
    """Cancel a request."""
    return turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[request]))


def test_in_place_of_a_queued_question_it_queues_behind_what_that_waited_for() -> None:
    turn = Turn()
    second = turn.request(turn.say("second", turn.answer), basis=turn.seal)
    message, request = asked(turn, "oops", second, basis=turn.seal)
    cancelled(turn, request)
    gone = cancelled(turn, message)
    waiting = place_instead_of(turn.held, message.id)
    assert waiting == Place((request.id,), turn.seal.id, Conflict.QUEUE)
    words, again = asked(turn, "right", *map(turn.of, waiting.parents), basis=turn.seal)
    listed = [turn.answer, *map(turn.of, second.header.parents), second]
    seal = turn.sealed(second, listed, turn.seal)
    came = turn.admit(turn.hal.write(turn.held.id, answer(), parents=[seal], basis=seal))
    found = seal_by_coverage(turn.held, again.id)
    assert found is not None
    assert found.entries == (came.id, request.id, words.id, again.id)
    assert gone.id in turn.held.log.entries[again.id].header.parents


def test_in_place_of_a_withdrawn_question_it_follows_the_answer_before() -> None:
    turn = Turn()
    message, request = asked(turn, "oops", turn.answer, basis=turn.seal)
    cancelled(turn, request)
    gone = cancelled(turn, message)
    place = place_instead_of(turn.held, message.id)
    assert place == newest_place(turn.held)
    words, again = asked(turn, "right", *map(turn.of, place.parents), basis=turn.seal)
    assert gone.id in place.parents
    seal = turn.sealed(again, [turn.answer, request, words, again], turn.seal)
    assert turn.held.order.seal_of[again.id] == seal.id
    later = turn.admit(turn.hal.write(turn.held.id, answer(), parents=[seal], basis=seal))
    assert newest_place(turn.held).parents == (later.id,)  # it is not late


def test_in_place_of_a_question_that_was_sealed_meanwhile_it_forks_beside_that() -> None:
    turn = Turn()
    message, request = asked(turn, "oops", turn.answer, basis=turn.seal)
    turn.sealed(request, [turn.answer, message, request], turn.seal)
    cancelled(turn, request)
    cancelled(turn, message)
    behind = Place((turn.answer.id,), turn.seal.id, Conflict.FORK)
    assert place_instead_of(turn.held, message.id) == behind


def test_in_place_of_a_question_behind_a_fork_it_follows_that_fork() -> None:
    turn = Turn()
    left, more = asked(turn, "more", turn.answer, basis=turn.seal)
    turn.sealed(more, [turn.answer, left, more], turn.seal)
    forks = forking(turn, turn.answer, turn.seal)
    message, request = asked(turn, "oops", forks, basis=turn.seal)
    cancelled(turn, request)
    cancelled(turn, message)
    words = asked(turn, "right", *map(turn.of, place_instead_of(turn.held, message.id).parents),
                  basis=turn.seal)[1]  # fmt: skip
    assert sealable(turn.held, words.id) is None  # it waits for the fork
    turn.sealed(forks, [turn.answer, forks], turn.seal)
    seal = turn.held.order.seal_of[forks.id]
    turn.admit(turn.hal.write(turn.held.id, answer(), parents=[turn.of(seal)], basis=turn.of(seal)))
    found = sealable(turn.held, words.id)
    assert found is not None
    assert message.id not in found.entries


def test_in_place_of_a_question_that_forked_it_forks_from_the_same_place() -> None:
    turn = Turn()
    first, request = asked(turn, "first", turn.answer, basis=turn.seal)
    words = turn.ada.write(turn.held.id, said("rather"), parents=[turn.answer], basis=turn.seal)
    cancelled(turn, forking(turn, turn.admit(words), turn.seal))
    cancelled(turn, words)
    place = Place((turn.answer.id,), turn.seal.id, Conflict.FORK)
    assert place_instead_of(turn.held, words.id) == place
    turn.sealed(request, [turn.answer, first, request], turn.seal)
    assert place_instead_of(turn.held, words.id) == place


def test_in_place_of_a_message_without_a_question_it_queues_behind_what_was_asked_since() -> None:
    turn = Turn()
    first, request = asked(turn, "first", turn.answer, basis=turn.seal)
    words = turn.ada.write(turn.held.id, said("alone"), parents=[turn.answer], basis=turn.seal)
    cancelled(turn, turn.admit(words))
    seal = turn.sealed(request, [turn.answer, first, request], turn.seal)
    place = place_instead_of(turn.held, words.id)
    assert (place.basis, place.conflict) == (seal.id, Conflict.QUEUE)


def test_another_answer_asked_for_with_a_fork_changes_nothing_for_what_was_queued() -> None:
    turn = Turn()
    first, request = asked(turn, "first", turn.answer, basis=turn.seal)
    words, queued = asked(turn, "typo", request, basis=turn.seal)
    cancelled(turn, forking(turn, words, turn.seal))
    cancelled(turn, queued)
    cancelled(turn, words)
    place = place_instead_of(turn.held, words.id)
    assert (place.basis, place.conflict) == (turn.seal.id, Conflict.QUEUE)
    assert first.id in turn.held.log.entries[request.id].header.parents


def test_in_place_of_another_members_fork_it_forks_from_the_same_place_too() -> None:
    turn = Turn()
    first, request = asked(turn, "first", turn.answer, basis=turn.seal)
    turn.sealed(request, [turn.answer, first, request], turn.seal)
    words = turn.ada.write(turn.held.id, said("rather"), parents=[turn.answer], basis=turn.seal)
    forking(turn, turn.admit(words), turn.seal)
    place = Place((turn.answer.id,), turn.seal.id, Conflict.FORK)
    assert place_instead_of(turn.held, words.id) == place
