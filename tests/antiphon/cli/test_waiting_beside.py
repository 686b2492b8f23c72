"""A question that was queued before the answer came: nobody else saw that it waits."""

from types import SimpleNamespace
from typing import Any

from antiphon.cli.commands.log import choose_entries
from antiphon.cli.views.branch_view import queue_words, view_of
from antiphon.cli.views.names import Names
from replica.conversation.place import newest_place, place_on_branch
from replica.log.body import Text
from replica.log.entry import Entry
from tests.antiphon.cli.test_other_branches import Saved
from tests.support.turns import Turns


def queued(turns: Turns) -> tuple[Entry, Entry]:
    """Write a question, one queued behind it, and the answer; return the one that waits."""
    first = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    said = turns.say(turns.writer, "And I?", first)
    asked = turns.ask(turns.writer, said)
    turns.answer(first, Text("Hello."))
    return said, asked


def test_it_is_next() -> None:
    turns = Turns()
    said, _ = queued(turns)
    view = view_of(turns.held, newest_place(turns.held))
    assert (view.running, view.waiting) == (None, ())
    assert [(one.author, one.message) for one in view.next] == [(turns.writer.public, said)]
    names = Names(given={turns.writer.public: "bob"})
    assert queue_words(turns.held, view, names) == "bob waits"
    assert queue_words(turns.held, view, Names(own=turns.writer.public)) == "you wait"


def test_who_asked_offline_behind_an_older_answer_comes_first() -> None:
    """`status` named one's own question alone, whose answer comes behind the other's."""
    turns = Turns()
    first = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    answer = turns.answer(first, Text("Hello."))
    offline = turns.ask(turns.writer, turns.say(turns.writer, "And I?", answer))
    for words in ("One.", "Two."):
        asked = turns.ask(turns.owner, turns.say(turns.owner, words, answer))
        if words == "One.":
            answer = turns.answer(asked, Text("Yes."))
    place = place_on_branch(turns.held, asked.id)
    view = view_of(turns.held, place)
    assert [one.request for one in view.next] == [offline]
    names = Names(own=turns.owner.public, given={turns.writer.public: "bob"})
    assert queue_words(turns.held, view, names) == "bob waits, next you"


async def test_it_is_in_the_log() -> None:
    turns = Turns()
    session: Any = Saved()
    session.out = SimpleNamespace(as_json=False)
    store: Any = None
    said, asked = queued(turns)
    shown = await choose_entries(session, store, turns.held, everything=False)
    assert shown[-2:] == [said, asked]
    assert len({entry.id for entry in shown}) == len(shown)
