"""What is shown of a question that was taken back while it waited."""

from antiphon.cli.graph import draw
from antiphon.cli.names import NOBODY
from antiphon.cli.rows import is_listed, row_of
from antiphon.cli.undone import TAKEN_BACK, is_of_undo_alone, is_taken_back
from replica.log.body import Cancel, FinishReason, Generation
from replica.log.entry import Conflict, Entry
from tests.support.turns import Turns


def queued(turns: Turns) -> Entry:
    """Return a request that is queued behind another."""
    first = turns.ask(turns.owner, turns.say(turns.owner, "Hi.", turns.genesis))
    return turns.ask(turns.owner, turns.say(turns.owner, "Oops.", first))


def take_back(turns: Turns, request: Entry) -> Entry:
    """Write what `/undo` writes; return the request that keeps the question apart."""
    cancel = turns.add(turns.owner, Cancel(), request)
    apart = turns.ask(turns.owner, cancel, conflict=Conflict.FORK)
    turns.add(turns.owner, Cancel(), apart)
    return apart


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
    apart = take_back(turns, request)
    assert shown(turns)[-1] == TAKEN_BACK
    assert (shown(turns).count(TAKEN_BACK), shown(turns).count("cancelled")) == (1, 0)
    ends = [end(turns, request), end(turns, apart)]
    assert (shown(turns).count(TAKEN_BACK), shown(turns).count("cancelled")) == (1, 0)
    assert [is_of_undo_alone(turns.held, one) for one in ends] == [False, True]
    drawn = [line.row.note for line in draw(turns.held, NOBODY) if line.row is not None]
    assert (drawn.count(TAKEN_BACK), drawn.count("cancelled")) == (1, 0)


def test_a_refused_question_that_is_taken_back_is_shown_as_refused() -> None:
    turns = Turns()
    request = queued(turns)
    end(turns, request, FinishReason.REFUSED)
    apart = turns.ask(turns.owner, request, conflict=Conflict.FORK)
    turns.add(turns.owner, Cancel(), apart)
    end(turns, apart)
    assert shown(turns)[-1].startswith("refused")
    assert TAKEN_BACK not in shown(turns)


def test_what_was_cancelled_is_shown_as_such_and_what_was_asked_as_asked() -> None:
    turns = Turns()
    request = queued(turns)
    turns.add(turns.owner, Cancel(), request)
    assert not is_taken_back(turns.held, request.id)
    assert shown(turns)[-1] == "cancelled"
    asked = turns.ask(turns.owner, request, conflict=Conflict.FORK)
    assert not is_of_undo_alone(turns.held, asked)
    assert shown(turns)[-2:] == ["cancelled", "not answered"]


def test_another_members_request_behind_a_cancelled_one_is_shown() -> None:
    turns = Turns()
    request = queued(turns)
    cancel = turns.add(turns.owner, Cancel(), request)
    theirs = turns.ask(turns.writer, cancel, conflict=Conflict.FORK)
    turns.add(turns.writer, Cancel(), theirs)
    assert shown(turns)[-2:] == ["cancelled", "cancelled"]
