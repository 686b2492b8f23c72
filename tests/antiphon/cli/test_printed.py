"""The messages that were taken back after they were printed."""

from antiphon.cli.views.names import NOBODY
from antiphon.cli.views.printed import Printed, taken_back_words
from replica.log.body import Cancel, Text
from tests.support.turns import Turns


def test_a_message_that_was_printed_and_is_withdrawn_is_told_once() -> None:
    turns = Turns()
    printed = Printed(turns.held)
    said, other = (turns.say(turns.writer, text, turns.genesis) for text in ("oops\nagain", "b"))
    request = turns.ask(turns.owner, other)
    for entry in (said, request):
        printed.add(entry.id)
    assert said.id in printed
    assert other.id not in printed
    assert printed.withdrawn() == []
    for entry in (said, other, request):
        turns.add(turns.owner, Cancel(), entry)
    assert printed.withdrawn() == [said]
    assert printed.withdrawn() == []
    by = NOBODY.of(turns.owner.public)
    assert taken_back_words(turns.held, said, NOBODY) == f"{by} took back: oops again"


def test_a_message_that_was_answered_is_not_taken_back() -> None:
    turns = Turns()
    printed = Printed(turns.held)
    said = turns.say(turns.owner, "Hi.", turns.genesis)
    printed.add(said.id)
    turns.answer(turns.ask(turns.owner, said), Text("Hello."))
    turns.add(turns.owner, Cancel(), said)
    assert printed.withdrawn() == []
