"""The place right behind an entry that somebody chose; further cases are in test_place.py."""

from contextlib import suppress
from dataclasses import replace

import pytest

from replica.conversation.backlog import awaited
from replica.conversation.chosen import place_at
from replica.conversation.conversation import Conversation
from replica.conversation.instead import place_instead_of
from replica.conversation.next_seal import sealable
from replica.conversation.place import Place, with_conflict
from replica.conversation.runs import retry_place
from replica.log.body import Cancel, Request, Sampling
from replica.log.entry import Conflict, Entry
from replica.log.kinds import Kind
from replica.refusals import ArgumentInvalid
from tests.convergence.unruly import Deep
from tests.replica.order.turn import Turn
from tests.support.branches import Scene
from tests.support.stories import Story
from tests.support.writers import Writer, said


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


def test_behind_a_question_that_waits_a_place_follows_the_cancel_of_the_answer_ahead() -> None:
    """After `antiphon cancel` the next message still waited, for good where the host was gone."""
    scene = Scene()
    _, base, reply = scene.turn()
    first = scene.ask(reply, basis=base)
    scene.seal(first)
    message = scene.say(first)
    asked = scene.ask(message, basis=base)
    chosen = place_at(scene.held, message.id)
    assert awaited(scene.held, chosen) == [first.id]
    queued = replace(place_at(scene.held, reply.id), conflict=Conflict.QUEUE)
    assert awaited(scene.held, queued) == [first.id]
    cancel = scene.cancel(first)
    for place, basis in (
        (place_at(scene.held, message.id), None),
        (place_at(scene.held, asked.id), base),
        (with_conflict(scene.held, queued, Conflict.QUEUE), base),
    ):
        assert cancel.id in place.parents
        assert place.conflict is Conflict.QUEUE
        assert awaited(scene.held, replace(place, parents=(cancel.id,))) == []
        parents = map(scene.held.log.entries.__getitem__, place.parents)
        assert sealable(scene.held, scene.ask(*parents, basis=basis).id) is not None


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


def test_behind_words_said_during_an_answer_a_fork_does_not_wait_for_it() -> None:
    """`antiphon send --at` waited there, for ever where the host was gone."""
    scene = Scene()
    first = scene.ask()
    base = scene.seal(first)
    note = scene.add(scene.ada.write(scene.held.id, said("note"), parents=[first], basis=base))
    assert place_at(scene.held, note.id) == Place((note.id,), None, Conflict.FORK)
    second = scene.ask(scene.cancel(first), note, basis=base)
    coming = scene.seal(second)
    place = place_at(scene.held, note.id)
    assert place == Place((note.id,), None, Conflict.FORK), "it does not follow the CANCEL"
    alone = scene.say(scene.hello)
    scene.seal(scene.ask(scene.cancel(second), alone, basis=coming))
    both = tuple(sorted((second.id, alone.id)))
    assert place_at(scene.held, alone.id) == Place(both, base.id, Conflict.FORK)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [Story, Deep])
def test_a_fork_anywhere_waits_for_no_answer(kind: type[Story], seed: int) -> None:
    story = kind(seed)
    story.grow(40)
    held, owner = story.held, Writer(1, epoch=5000)
    hosts = [one.public for one in story.hosts if held.log.membership.is_host(one.public)]
    if not hosts or not held.log.membership.is_owner(owner.public):
        return
    for entry in list(story.entries):
        for place in _places(held, entry):
            there = with_conflict(held, place, Conflict.FORK)
            assert place.conflict is Conflict.QUEUE or place == there
            basis = story.at(there.basis)[0] if there.basis is not None else None
            more = {"parents": story.at(*there.parents), "basis": basis}
            body = Request(hosts[0], Sampling())
            fork = story.add(owner.write(held.id, body, conflict=there.conflict, **more))
            assert sealable(held, fork.id) is not None


def _places(held: Conversation, entry: Entry) -> list[Place]:
    """Return the places that somebody may choose by an entry."""
    places = [retry_place(held, entry.id)] if held.order.request(entry.id) is not None else []
    if entry.header.kind == Kind.MESSAGE:
        places.append(place_instead_of(held, entry.id))
    with suppress(ArgumentInvalid):
        places.append(place_at(held, entry.id))
    return places
