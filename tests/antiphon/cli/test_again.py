"""The place of another answer, as `/again` and `send --again` ask for it."""

from types import SimpleNamespace
from typing import Any

from antiphon.cli.chat import chat_commands
from antiphon.cli.chat.chat_session import ChatSession
from replica.conversation.place import Place
from replica.log.body import FinishReason, Generation, Text
from replica.log.entry import Conflict, Entry
from tests.antiphon.cli.test_other_branches import Saved
from tests.support.turns import Turns
from tests.support.writers import said


def queued(turns: Turns) -> tuple[Entry, Entry, Entry]:
    """Write a question and one queued behind it; return the latter, its request, the answer."""
    first = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    words = turns.say(turns.owner, "And?", first)
    request = turns.ask(turns.owner, words)
    return words, request, turns.answer(first, Text("Hello."))


async def again(turns: Turns, request: Entry) -> Place:
    """Run `/again` on the branch of a request; return the place of the turn."""
    replica: Any = Saved()
    replica.public, replica.store = turns.owner.public, None
    replica.hub = SimpleNamespace(check_taken=lambda _held: None)
    session: Any = Saved()
    chat = ChatSession(session, replica, turns.held, None, {}, branch=request.id.hex())
    turn = await chat_commands.run(chat, "/again")
    assert turn is not None
    return turn.place


async def test_another_answer_follows_the_answer_that_the_question_was_queued_behind() -> None:
    turns = Turns()
    words, request, before = queued(turns)
    turns.answer(request, Text("Yes."))
    (base,) = before.header.parents
    parents = tuple(sorted((words.id, before.id)))
    assert await again(turns, request) == Place(parents, base, Conflict.FORK)


async def test_a_refused_question_is_asked_again_in_its_place() -> None:
    turns = Turns()
    words, request, _ = queued(turns)
    turns.add(turns.host, Generation((), (), 0, FinishReason.REFUSED), request)
    assert await again(turns, request) == Place((words.id,), None, Conflict.QUEUE)


async def test_another_answer_is_asked_for_beside_one_that_is_still_to_come() -> None:
    turns = Turns()
    words, request, _ = queued(turns)
    assert await again(turns, request) == Place((words.id,), None, Conflict.FORK)


async def test_another_answer_waits_for_none_ahead_of_its_question() -> None:
    """It forked from the seal ahead, and waited for that answer, also of a host that is gone."""
    turns = Turns()
    first = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    seal = turns.seal(first)
    words = turns.add(turns.owner, said("And?"), first, basis=seal)
    request = turns.ask(turns.owner, words, basis=seal)
    assert await again(turns, request) == Place((words.id,), None, Conflict.FORK)
