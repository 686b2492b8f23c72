"""The place right behind an entry that somebody chose; further cases are in test_place.py."""

import pytest

from replica.conversation.chosen import place_at
from replica.conversation.place import Place
from replica.log.body import Cancel, Request, Sampling
from replica.log.entry import Conflict
from replica.refusals import ArgumentInvalid
from tests.replica.order.turn import Turn


def test_behind_a_question_that_waits_a_place_queues_until_that_is_sealed_or_closed() -> None:
    """It forked, and left out the answer that the question waits for."""
    turn = Turn()
    first = turn.request(turn.say("first", turn.answer), basis=turn.seal)
    message = turn.say("second", first)
    request = turn.request(message, basis=turn.seal)
    for one in (message, request):
        waiting = Place((one.id,), turn.seal.id if one is request else None, Conflict.QUEUE)
        assert place_at(turn.held, one.id) == waiting
    assert place_at(turn.held, first.id).conflict is Conflict.FORK  # it waits for nothing
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[request]))
    for one in (message, request):
        assert place_at(turn.held, one.id).conflict is Conflict.FORK


def test_behind_a_fork_that_waits_a_place_forks() -> None:
    turn = Turn()
    message = turn.say("rather", turn.answer)
    body = Request(turn.hal.public, Sampling())
    more = {"parents": [message], "basis": turn.seal, "conflict": Conflict.FORK}
    request = turn.admit(turn.ada.write(turn.held.id, body, **more))
    for one in (message, request):
        assert place_at(turn.held, one.id).conflict is Conflict.FORK


def test_nothing_is_placed_at_a_withdrawn_message() -> None:
    turn = Turn()
    words = turn.say("oops", turn.answer)
    reply = turn.say("what?", words)
    turn.admit(turn.ada.write(turn.held.id, Cancel(), parents=[words]))
    with pytest.raises(ArgumentInvalid, match="withdrawn"):
        place_at(turn.held, words.id)
    assert place_at(turn.held, reply.id).parents == (reply.id,)
