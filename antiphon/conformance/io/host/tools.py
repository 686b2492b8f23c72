"""Tools: definitions, calls that stay open, and results."""

import json

from antiphon.conformance.cases import NotApplicable, check, equal
from antiphon.conformance.io.host.refusals import check_refused
from antiphon.conformance.io.host.service_calls import default_profile, rendered
from antiphon.conformance.io.host.talk import CASES, Talk, UnderTest, require_context
from replica.conversation import Author
from replica.ids import EntryId
from replica.io import HostCalls
from replica.log import (
    Body,
    Conflict,
    FinishReason,
    Message,
    Outcome,
    Projected,
    Role,
    Speaker,
    Text,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolResult,
    Tools,
    text_of,
)

_case = CASES.theme("tools").shows
CALL = "call-1"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition("weather", "Forecast of the weather in a city.", json.dumps(SCHEMA))
ARGUMENTS = '{"city": "Rome"}'
CALL_TOKENS_MAX = 300
CONTEXT_TOKENS_MIN = 1024
"""The shortest context that holds the definitions and a call, with a small vocabulary too."""

Ids = tuple[int, ...]


@_case("HOST-13")
async def open_call(run: UnderTest) -> None:
    """Behind an open call a request that forks is refused, naming it, and one that queues waits."""
    async with run.talk() as talk:
        call = await _called(talk, None)
        queued = await _ask(talk, call, Conflict.QUEUE)
        for _ in range(2):
            await _is_refused(talk, call)
        # The host has decided about requests that came later than the one that queues.
        check(queued not in talk.held.order.seal_of, "a request that queues is sealed too soon")
        equal(talk.held.order.answer(queued), None, "the answer of a request that queues")
        result = await _result(talk, call, None)
        await talk.answer(await _ask(talk, result, Conflict.QUEUE))
        await talk.answer(queued)


@_case("HOST-43")
async def results_that_close(run: UnderTest) -> None:
    """The executor closes a call, the requester with an error alone; else it stays open."""
    async with run.talk() as talk:
        executor = await talk.other(Role.WRITER)
        call = await _called(talk, executor)
        foreign = await _result(talk, call, None)
        await _is_refused(talk, foreign)
        closed = await _ask(talk, await _result(talk, call, executor), Conflict.FORK)
        await talk.answer(closed)
        failed = await _ask(talk, await _result(talk, foreign, None, is_error=True), Conflict.FORK)
        await talk.answer(failed)
        wanted = (Projected(foreign, 0, Outcome.DROPPED),)
        equal(talk.seal_of(failed).projections, wanted, "the projections of a foreign result")
        equal(talk.seal_of(closed).projections, (), "the projections of the executor's result")


async def _called(talk: Talk, executor: Author | None) -> EntryId:
    """Ask, then call a tool as the executor of the request; return the message of the call."""
    request = await talk.ask(tokens=2, executor=executor.public if executor else None)
    order = talk.held.order
    answer = order.generation_of(request)
    assert answer is not None, "it is answered"
    call = Message(Speaker.ASSISTANT, (ToolCall(CALL, "weather", ARGUMENTS),))
    written = await talk.write(
        call, parents=(answer,), basis=order.seal_of[request], author=executor
    )
    return written.id


async def _result(
    talk: Talk, parent: EntryId, author: Author | None, *, is_error: bool = False
) -> EntryId:
    result = Message(Speaker.TOOL, (ToolResult(CALL, (Text("Sunny."),), is_error),))
    return await _behind(talk, result, parent, author=author)


async def _ask(talk: Talk, parent: EntryId, conflict: Conflict) -> EntryId:
    return await _behind(talk, talk.request_body(2), parent, conflict=conflict)


async def _behind(
    talk: Talk,
    body: Body,
    parent: EntryId,
    *,
    conflict: Conflict = Conflict.QUEUE,
    author: Author | None = None,
) -> EntryId:
    """Write an entry behind another one, and on the seal behind which that was written."""
    basis = talk.held.log.entries[parent].header.basis
    entry = await talk.write(body, parents=(parent,), basis=basis, conflict=conflict, author=author)
    return entry.id


async def _is_refused(talk: Talk, parent: EntryId) -> None:
    """Check that a request that forks there is refused, naming the call."""
    request = await _ask(talk, parent, Conflict.FORK)
    await check_refused(talk, request, "OBLIGATIONS_OPEN")
    detail = (await talk.closed(request)).finish_detail
    check(CALL in detail, f"the refusal does not name the open call: {detail}")


@_case("HOST-8", "HOST-41")
async def definitions(run: UnderTest) -> None:
    """Definitions render where they are listed: in the system turn before, or in one of theirs."""
    async with run.talk() as talk, run.calls(talk) as calls:
        if not (await default_profile(calls)).tools:
            await talk.write(Tools((WEATHER,)))
            await talk.say()
            await check_refused(talk, await talk.request(), "TOOLS_UNSUPPORTED")
            return
        require_context(talk, CONTEXT_TOKENS_MIN)
        joined, said = await _rendered_tools(talk, calls, Speaker.SYSTEM)
        own, said_behind_own = await _rendered_tools(talk, calls, Speaker.USER)
        check(own, "definitions render as nothing")
        half = len(own) // 2
        equal(joined[-half:], own[-half:], "the end of definitions in a system turn")
        check(len(joined) < len(own), "definitions open a turn behind a system turn")
        equal(said, said_behind_own, "the tokens of the message behind them")


async def _rendered_tools(talk: Talk, calls: HostCalls, before: Speaker) -> tuple[Ids, Ids]:
    """Begin a branch; return the tokens of definitions behind a message, and of one behind them."""
    parents, listed = (EntryId(talk.held.id),), list[EntryId]()
    said = Message(Speaker.USER, (Text("How is the weather?"),))
    for body in (Message(before, (Text("Be brief."),)), Tools((WEATHER,)), said):
        listed.append((await talk.write(body, parents=parents)).id)
        parents = (listed[-1],)
    asked = talk.request_body(1)
    request = (await talk.write(asked, parents=parents, conflict=Conflict.FORK)).id
    await talk.answer(request)
    tokens = dict((await rendered(talk, calls, talk.held.order.seal_of[request]))[0])
    return tuple(tokens[listed[1]]), tuple(tokens[listed[2]])


@_case("HOST-42")
async def calls_in_answers(run: UnderTest) -> None:
    """A call in an answer is a part with the id that its request yields, and no text."""
    async with run.talk() as talk, run.calls(talk) as calls:
        profile = await default_profile(calls)
        if not (profile.tools and profile.grammar_engine):
            raise NotApplicable("the host's model can not be made to call a tool")
        require_context(talk, CONTEXT_TOKENS_MIN)
        await talk.write(Tools((WEATHER,)))
        await talk.say("How is the weather in Rome?")
        named = {"tool_choice": ToolChoice.NAMED, "tool_name": WEATHER.name}
        request = await talk.request(CALL_TOKENS_MAX, **named)
        answer = await talk.answer(request)
        equal(FinishReason(answer.finish_reason), FinishReason.TOOL_CALLS, "the finish reason")
        found = [part for part in answer.parts if isinstance(part, ToolCall)]
        ids = [f"{request.hex()[:24]}-{number}" for number in range(len(found))]
        equal([part.call_id for part in found], ids, "the ids of the calls")
        check(found, "the answer has no call")
        for part in found:
            equal(part.name, WEATHER.name, "the name of the tool")
            equal(json.loads(part.arguments_json), json.loads(ARGUMENTS), "the arguments")
        shown = b"".join(draft.data for draft in talk.drafts if draft.request == request)
        equal((text_of(answer.parts), shown), ("", b""), "the text of an answer that is a call")
