"""The next step of a run follows from the log alone."""

import pytest

from replica.conversation.keys import KeyedRun
from replica.conversation.place import Place
from replica.conversation.runs import (
    Ask,
    AskAnew,
    Await,
    Done,
    Perform,
    Say,
    calls_ahead,
    calls_behind,
    calls_made,
    has_not_called,
    has_started,
    next_step,
    not_called,
    offered_tools,
    result_place,
    retry_place,
    uncounted_results,
)
from replica.ids import EntryId
from replica.log.body import (
    FinishReason,
    Generation,
    Message,
    Revocation,
    Speaker,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Tools,
    ToolStarted,
)
from replica.log.entry import Conflict, Entry
from tests.support.turns import Turns
from tests.support.writers import Writer

CALL, OTHER = ToolCall("a", "book", "{}"), ToolCall("b", "look", "{}")


@pytest.fixture
def turns() -> Turns:
    return Turns()


def asked(turns: Turns) -> tuple[KeyedRun, Entry]:
    said = turns.say(turns.owner, "Book.", turns.genesis)
    request = turns.ask(turns.owner, said)
    return KeyedRun(said.id, (request.id,)), request


def called(turns: Turns, *calls: ToolCall) -> tuple[KeyedRun, Entry]:
    run, request = asked(turns)
    return run, turns.answer(request, *calls, reason=FinishReason.TOOL_CALLS)


def result(turns: Turns, author: Writer, *parents: Entry, call: str = "a", error: bool = False):
    part = ToolResult(call, (Text("done"),), error)
    return turns.add(author, Message(Speaker.TOOL, (part,)), *parents)


def open_ids(turns: Turns, run: KeyedRun) -> list[str]:
    return [one.call.call_id for one in calls_behind(turns.held, run.requests[-1])[0]]


def test_a_run_goes_from_message_to_request_to_answer(turns: Turns):
    assert next_step(turns.held, KeyedRun()) == Say()
    said = turns.say(turns.owner, "Book.", turns.genesis)
    assert next_step(turns.held, KeyedRun(said.id)) == Ask(Place((said.id,), None))
    request = turns.ask(turns.owner, said)
    run = KeyedRun(said.id, (request.id,))
    assert next_step(turns.held, run) == Await(request.id)
    answer = turns.answer(request, Text("Done."))
    step = next_step(turns.held, run)
    assert isinstance(step, Done)
    assert step.generation_id == answer.id


def test_open_calls_are_performed_and_then_the_next_request_is_due(turns: Turns):
    run, answer = called(turns, CALL, OTHER)
    step = next_step(turns.held, run)
    assert isinstance(step, Perform)
    assert [one.call for one in step.calls] == [CALL, OTHER]
    first = result(turns, turns.owner, answer)
    assert open_ids(turns, run) == ["b"]
    second = result(turns, turns.owner, first, call="b")
    basis = turns.held.order.seal_of[run.requests[0]]
    assert next_step(turns.held, run) == Ask(Place((second.id,), basis))


def test_a_started_call_is_known_by_its_effect_key(turns: Turns):
    run, answer = called(turns, CALL)
    (one,), _ = calls_behind(turns.held, run.requests[0])
    assert one.started is None
    assert not has_started(turns.held, run)
    turns.add(turns.owner, Message(Speaker.TOOL, (ToolStarted("a", one.effect_key),)), answer)
    (again,), _ = calls_behind(turns.held, run.requests[0])
    assert again.started == one.effect_key
    assert has_started(turns.held, run)
    # The start is no result: a request does not follow it.
    assert result_place(turns.held, run.requests[0]).parents == (answer.id,)


def test_calls_that_were_not_made_do_not_count(turns: Turns):
    run, answer = called(turns, CALL, OTHER)
    assert (calls_made(turns.held, KeyedRun()), calls_made(turns.held, run)) == (0, 0)
    first = result(turns, turns.owner, answer)
    (one,), _ = calls_behind(turns.held, run.requests[0])
    assert not has_not_called(turns.held, run.requests[0])
    turns.add(turns.owner, Message(Speaker.TOOL, (not_called(one),)), first)
    assert has_not_called(turns.held, run.requests[0])
    assert open_ids(turns, run) == []
    assert calls_made(turns.held, run) == 1


def test_a_start_counts_though_its_author_was_revoked_since(turns: Turns):
    said = turns.say(turns.writer, "Book.", turns.genesis)
    request = turns.ask(turns.writer, said)
    answer = turns.answer(request, CALL, reason=FinishReason.TOOL_CALLS)
    turns.add(turns.writer, Message(Speaker.TOOL, (ToolStarted("a", "key"),)), answer)
    turns.change(Revocation(turns.writer.public))
    (one,), _ = calls_behind(turns.held, request.id)
    assert one.started == "key"


def test_a_start_that_another_member_writes_is_none(turns: Turns):
    run, answer = called(turns, CALL)
    turns.add(turns.writer, Message(Speaker.TOOL, (ToolStarted("a", "key"),)), answer)
    (one,), _ = calls_behind(turns.held, run.requests[0])
    assert one.started is None
    assert not has_started(turns.held, run)


def test_a_forged_result_closes_nothing(turns: Turns):
    run, answer = called(turns, CALL)
    forged = result(turns, turns.writer, answer)
    abandoned = result(turns, turns.writer, answer, error=True)
    assert open_ids(turns, run) == ["a"]
    result(turns, turns.owner, answer)
    assert open_ids(turns, run) == []
    ignored = uncounted_results(turns.held, run.requests[0])
    assert ignored == {(forged.id, 0), (abandoned.id, 0)}


def test_an_owner_abandons_the_call_of_an_executor_that_is_gone(turns: Turns):
    said = turns.say(turns.writer, "Book.", turns.genesis)
    run = KeyedRun(said.id, (turns.ask(turns.writer, said).id,))
    answer = turns.answer(turns.entry(run.requests[0]), CALL, reason=FinishReason.TOOL_CALLS)
    wrong = result(turns, turns.owner, answer)
    assert open_ids(turns, run) == ["a"]
    closing = result(turns, turns.owner, answer, error=True)
    assert open_ids(turns, run) == []
    assert {*result_place(turns.held, run.requests[0]).parents} == {wrong.id, closing.id}


def test_a_call_that_the_program_decided_is_open_until_its_result(turns: Turns):
    run, request = asked(turns)
    answer = turns.answer(request, Text("Yes."))
    own = turns.add(turns.owner, Message(Speaker.ASSISTANT, (CALL,)), answer)
    assert open_ids(turns, run) == ["a"]
    closing = result(turns, turns.owner, own)
    step = next_step(turns.held, run)
    assert isinstance(step, Ask)
    assert step.place.parents == (closing.id,)


def test_a_message_of_another_member_during_a_call_is_no_result(turns: Turns):
    run, answer = called(turns, CALL)
    theirs = turns.say(turns.writer, "Also Rome?", answer)
    turns.ask(turns.writer, theirs)
    done = result(turns, turns.owner, answer)
    step = next_step(turns.held, run)
    assert isinstance(step, Ask)
    assert step.place.parents == (done.id,)


def test_another_try_stands_beside_an_answer_and_in_the_place_of_a_refusal(turns: Turns):
    _, request = asked(turns)
    parents = request.header.parents
    assert retry_place(turns.held, request.id) == Place(parents, None, Conflict.QUEUE)
    turns.answer(request, reason=FinishReason.INTERRUPTED)
    assert retry_place(turns.held, request.id) == Place(parents, None, Conflict.FORK)


def test_another_try_of_a_refused_request_that_forks_forks_again(turns: Turns):
    said = turns.say(turns.owner, "Or rather?", turns.genesis)
    request = turns.ask(turns.owner, said, conflict=Conflict.FORK)
    turns.add(turns.host, Generation((1,), (), 0, FinishReason.REFUSED), request)
    assert retry_place(turns.held, request.id) == Place((said.id,), None, Conflict.FORK)


def test_another_try_of_a_request_for_the_rest_of_an_answer_forks(turns: Turns):
    """Queued again, it was refused again: the other member's rest stays where it is (HOST-128)."""
    _, request = asked(turns)
    cut = turns.answer(request, Text("An ans"), reason=FinishReason.LENGTH)
    seal = turns.entry(cut.header.parents[0])
    first, second = (turns.ask(one, cut, basis=seal) for one in (turns.owner, turns.writer))
    turns.answer(first, Text("wer."))
    turns.add(turns.host, Generation((), (), 0, FinishReason.REFUSED), second)
    assert retry_place(turns.held, second.id) == Place((cut.id,), seal.id, Conflict.FORK)


def test_the_tools_offered_are_those_of_the_last_definition_before(turns: Turns):
    tool = ToolDefinition("book", "Books.", "{}")
    offers = turns.add(turns.owner, Tools((tool,)), turns.genesis)
    said = turns.say(turns.owner, "Book.", offers)
    none = turns.add(turns.owner, Tools(()), said)
    assert offered_tools(turns.held, Place((said.id,), None)) == (tool,)
    assert offered_tools(turns.held, Place((none.id,), None)) == ()
    assert offered_tools(turns.held, Place((EntryId(turns.genesis.id),), None)) == ()


def test_a_revoked_executor_closes_nothing_and_an_owner_does(turns: Turns):
    said = turns.say(turns.writer, "Book.", turns.genesis)
    run = KeyedRun(said.id, (turns.ask(turns.writer, said).id,))
    answer = turns.answer(turns.entry(run.requests[0]), CALL, reason=FinishReason.TOOL_CALLS)
    turns.change(Revocation(turns.writer.public))
    result(turns, turns.writer, answer)
    assert open_ids(turns, run) == ["a"]
    result(turns, turns.owner, answer, error=True)
    assert open_ids(turns, run) == []


def test_a_request_waits_while_the_executor_ahead_of_it_works(turns: Turns):
    said = turns.say(turns.writer, "Book.", turns.genesis)
    ahead = turns.ask(turns.writer, said)
    mine = turns.say(turns.owner, "And me?", turns.genesis)
    request = turns.ask(turns.owner, mine)
    run = KeyedRun(mine.id, (request.id,))
    answer = turns.answer(ahead, CALL, reason=FinishReason.TOOL_CALLS)
    assert next_step(turns.held, run) == Await(request.id)
    # While the executor works, the request waits: the executor asks next.
    done = result(turns, turns.writer, answer)
    assert next_step(turns.held, run) == Await(request.id)
    assert done.id in result_place(turns.held, ahead.id).parents


def test_a_request_asked_anew_follows_the_abandoning_result(turns: Turns):
    said = turns.say(turns.writer, "Book.", turns.genesis)
    ahead = turns.ask(turns.writer, said)
    mine = turns.say(turns.owner, "And me?", turns.genesis)
    request = turns.ask(turns.owner, mine)
    run = KeyedRun(mine.id, (request.id,))
    answer = turns.answer(ahead, CALL, reason=FinishReason.TOOL_CALLS)
    closing = result(turns, turns.owner, answer, error=True)
    place = Place(tuple(sorted((mine.id, closing.id))), None)
    assert next_step(turns.held, run) == AskAnew(request.id, place)
    again = turns.ask(turns.owner, mine, closing)
    assert next_step(turns.held, run.asked(again.id, 0)) == Await(again.id)
    assert turns.answer(again, Text("Yes."))


def test_a_branch_that_begins_between_a_call_and_its_result_lacks_the_result(turns: Turns):
    run, answer = called(turns, CALL)
    basis = turns.held.order.seal_of[run.requests[0]]
    done = result(turns, turns.owner, answer)

    def ahead(*parents: Entry, conflict: Conflict) -> list[str]:
        place = Place(tuple(sorted(e.id for e in parents)), basis, conflict)
        return [one.call.call_id for one in calls_ahead(turns.held, place)]

    assert ahead(answer, conflict=Conflict.FORK) == ["a"]
    assert ahead(done, conflict=Conflict.FORK) == []
    assert ahead(turns.entry(run.requests[0]), conflict=Conflict.FORK) == []  # beside the answer
    # What waits gets a result that it does not follow, until another branch has that.
    assert ahead(answer, conflict=Conflict.QUEUE) == []
    fork = turns.ask(turns.owner, answer, basis=turns.entry(basis), conflict=Conflict.FORK)
    ahead_of_fork = turns.say(turns.owner, "Again.", fork)
    assert ahead(ahead_of_fork, conflict=Conflict.QUEUE) == []
    request = turns.ask(turns.owner, done, basis=turns.entry(basis))
    turns.answer(request, Text("Booked."))
    refuse(turns, fork)
    assert ahead(ahead_of_fork, conflict=Conflict.QUEUE) == ["a"]


def refuse(turns: Turns, request: Entry) -> None:
    """Let the host refuse a request."""
    refusal = Generation((), (), 0, FinishReason.REFUSED)
    turns.add(turns.host, refusal, request, basis=turns.entry(request.header.basis or b""))
