"""What is shown of a question that was taken back while it waited."""

from types import SimpleNamespace
from typing import Any

from antiphon.cli.chat import chat_commands
from antiphon.cli.chat.chat_session import ChatSession
from antiphon.cli.commands.branches import branches_of
from antiphon.cli.common.session import Choices
from antiphon.cli.common.turn import again_place, continued_place
from antiphon.cli.views.graph import draw
from antiphon.cli.views.names import NOBODY
from antiphon.cli.views.rows import is_listed, row_of
from antiphon.cli.views.titles import title_of
from antiphon.cli.views.undone import TAKEN_BACK, is_taken_back, is_undone
from replica.conversation.place import newest_place
from replica.log.body import Cancel, FinishReason, Generation, Text
from replica.log.entry import Conflict, Entry
from tests.antiphon.cli.test_other_branches import Saved
from tests.support.turns import Turns


def queued(turns: Turns) -> Entry:
    """Return a request that is queued behind another."""
    first = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    return turns.ask(turns.owner, turns.say(turns.owner, "Oops.", first))


def take_back(turns: Turns, request: Entry) -> Entry:
    """Write what `/undo` writes; return the CANCEL of the message."""
    turns.add(turns.owner, Cancel(), request)
    (message,) = request.header.parents
    return turns.add(turns.owner, Cancel(), message)


def end(turns: Turns, request: Entry, reason: FinishReason = FinishReason.CANCELLED) -> Entry:
    """Let the host close a request that it has not sealed."""
    return turns.add(turns.host, Generation((), (), 0, reason), request)


def shown(turns: Turns) -> list[str]:
    """Return the notes of what `log --all` shows."""
    held = turns.held
    entries = sorted(held.log.entries.values(), key=lambda entry: entry.order_key)
    return [row_of(held, entry).note for entry in entries if is_listed(held, entry)]


def test_a_question_is_taken_back_once_before_and_after_the_host_knows() -> None:
    turns = Turns()
    request = queued(turns)
    take_back(turns, request)
    for _ in range(2):
        assert (shown(turns).count(TAKEN_BACK), shown(turns).count("cancelled")) == (1, 0)
        drawn = [line.row.note for line in draw(turns.held, NOBODY) if line.row is not None]
        assert (drawn.count(TAKEN_BACK), drawn.count("cancelled")) == (1, 0)
        end(turns, request)


def test_a_refused_question_that_is_taken_back_is_shown_as_taken_back() -> None:
    """Its refusal stayed, and `/again` asked it once more."""
    turns = Turns()
    request = queued(turns)
    end(turns, request, FinishReason.REFUSED)
    assert shown(turns)[-1].startswith("refused")
    turns.add(turns.owner, Cancel(), *request.header.parents)
    assert TAKEN_BACK in shown(turns)
    assert not any(note.startswith("refused") for note in shown(turns))
    first = next(i for i in turns.held.order.requests if i != request.id)
    place = again_place(turns.held, newest_place(turns.held))
    assert place == newest_place(turns.held)
    assert is_taken_back(turns.held, request.id)
    assert not is_taken_back(turns.held, first)


def test_what_was_cancelled_is_shown_as_such_and_what_was_asked_as_asked() -> None:
    turns = Turns()
    request = queued(turns)
    turns.add(turns.owner, Cancel(), request)
    assert not is_taken_back(turns.held, request.id)
    assert shown(turns)[-1] == "cancelled; no answer came"
    turns.ask(turns.owner, request, conflict=Conflict.FORK)
    assert [note.partition(" · ")[0] for note in shown(turns)[-2:]] == [
        "cancelled; no answer came", "not answered",
    ]  # fmt: skip


def answered(turns: Turns, text: str = "Hello.") -> Entry:
    """Return the seal of a question that was answered, behind which another was taken back."""
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    reason = FinishReason.LENGTH
    answer = turns.answer(turns.ask(turns.owner, said), Text(text), reason=reason)
    seal = turns.entry(answer.header.parents[0])
    request = turns.ask(turns.owner, turns.say(turns.owner, "Oops.", answer), basis=seal)
    take_back(turns, request)
    end(turns, request)
    return seal


def test_all_of_a_question_that_was_taken_back_is_passed_over() -> None:
    turns = Turns()
    held, before = turns.held, set(turns.held.log.entries.values())
    said = turns.say(turns.writer, "A note.", turns.genesis)
    before |= {said, turns.genesis}
    request = turns.ask(turns.owner, turns.say(turns.owner, "Oops.", said))
    take_back(turns, request)
    written = set(held.log.entries.values()) - before
    assert len(written) == 4
    assert not any(is_undone(held, entry) for entry in before)
    assert all(is_undone(held, entry) for entry in written)


def test_what_another_member_asked_about_or_a_seal_lists_is_not_passed_over() -> None:
    turns = Turns()
    held = turns.held
    said = turns.say(turns.owner, "Oops.", turns.genesis)
    request = turns.ask(turns.owner, said)
    take_back(turns, request)
    assert is_undone(held, said)
    turns.answer(turns.ask(turns.writer, said))
    assert not is_undone(held, said)
    assert not is_undone(held, request)
    theirs = turns.say(turns.writer, "Mine.", turns.genesis)
    asked = turns.ask(turns.owner, theirs)
    turns.add(turns.owner, Cancel(), asked)
    assert not is_undone(held, theirs)
    assert not is_undone(held, asked)


def test_a_branch_is_named_by_what_was_said_last_on_it() -> None:
    turns = Turns()
    answered(turns)
    (branch,) = branches_of(turns.held, Choices())
    assert branch.last == "Hi."
    assert title_of(turns.held) == "Hi."


def test_another_answer_or_more_of_it_is_asked_for_behind_what_was_said_last() -> None:
    turns = Turns()
    seal = answered(turns)
    node = turns.held.order.nodes[seal.id]
    end = newest_place(turns.held)
    assert continued_place(turns.held, end).parents == (node.generation,)
    asked = turns.entry(node.seal.request)
    assert again_place(turns.held, end).parents == asked.header.parents


async def test_a_fork_behind_the_last_answer_is_behind_what_was_answered() -> None:
    turns = Turns()
    seal = answered(turns)
    noted: list[object] = []
    session: Any = Saved()
    session.out = SimpleNamespace(note=noted.append, as_json=False)
    replica: Any = SimpleNamespace(public=turns.owner.public, store=None)
    chat = ChatSession(session, replica, turns.held, None, {})
    await chat_commands.fork(chat, "")
    answer = turns.held.order.nodes[seal.id].generation
    assert answer is not None
    assert session.saved.at == answer.hex()
    assert str(noted[0]).endswith("model: Hello.")
