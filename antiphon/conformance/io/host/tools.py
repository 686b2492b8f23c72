"""Tools: definitions, calls that stay open, and results."""

import json
from collections.abc import Sequence
from itertools import takewhile

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
    ToolStarted,
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
ASKED = Message(Speaker.USER, (Text("How?"),))
OFFER = Tools((ToolDefinition("f", "", "{}"),))
NO_FUNCTIONS = "From now on, there are no functions."
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


@_case("HOST-41")
async def later_definitions(run: UnderTest) -> None:
    """Definitions behind others say that they replace these, and none that there are none."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await _require_tools(talk, calls)
        _, first, _, again = await _rendered(talk, calls, (ASKED, OFFER, ASKED, OFFER))
        half = len(first) // 2
        equal(again[-half:], first[-half:], "the end of definitions behind others")
        check(
            len(again) > len(first), "definitions behind others do not say that they replace them"
        )
    none, words = Tools(()), Message(Speaker.SYSTEM, (Text(NO_FUNCTIONS),))
    async with run.talk() as talk, run.calls(talk) as calls:
        bodies = (ASKED, none, OFFER, ASKED, none, ASKED, words)
        _, before, _, _, behind, _, said = await _rendered(talk, calls, bodies)
        equal(before, (), "the tokens of no definitions where there were none before")
        half = len(said) // 2
        equal(behind[-half:], said[-half:], f"the end of {NO_FUNCTIONS!r}")


@_case("HOST-41")
async def definitions_as_written(run: UnderTest) -> None:
    """Names and descriptions are JSON that escapes little; parameters are those of the log."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await _require_tools(talk, calls)
        tool = ToolDefinition("f", 'Say "é".', '{"type":  "object"}')
        text = (
            '{"type": "function", "function": {"name": "f", "description": "Say \\"é\\".", '
            '"parameters": {"type":  "object"}}}'
        )
        messages = [Message(Speaker.USER, (Text(said),)) for said in ("How?", "How?", text)]
        _, other, written, offered = await _rendered(talk, calls, (*messages, Tools((tool,))))
        begin = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(other, written, strict=False))
        )
        # The first token may have the space that ends the literal before it.
        content = written[begin + 1 :]
        places = range(len(offered) - len(content) + 1)
        found = any(offered[at : at + len(content)] == content for at in places)
        check(found, f"the definition is not written as {text}")


@_case("HOST-100")
async def results_in_contexts(run: UnderTest) -> None:
    """A result that is an error says so; the note that a tool was started renders as nothing."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await _require_tools(talk, calls)
        request = await talk.ask(tokens=2)
        ids = [f"call-{number}" for number in range(5)]
        called = tuple(ToolCall(one, "weather", ARGUMENTS) for one in ids)
        sunny = (Text("Sunny."),)
        results = (
            (ToolResult(ids[0], sunny),),
            (ToolResult(ids[1], sunny),),
            (ToolResult(ids[2], sunny, is_error=True),),
            (ToolResult(ids[3], (), is_error=True),),
            (ToolStarted(ids[4], "kit"), ToolResult(ids[4], sunny)),
        )
        bodies = (
            Message(Speaker.ASSISTANT, called),
            *(Message(Speaker.TOOL, parts) for parts in results),
        )
        rendering = await _rendered(talk, calls, bodies, behind=request)
        _, _, plain, failed, empty, started = rendering
        equal(started, plain, "the tokens of a result behind the note of its start")
        extra = len(failed) - len(plain)
        marked = any(failed[:at] + failed[at + extra :] == plain for at in range(len(plain)))
        check(extra > 0 and marked, "a result that is an error has no mark before its text")
        check(failed != empty != plain, "an error without text renders like another result")


async def _require_tools(talk: Talk, calls: HostCalls) -> None:
    if not (await default_profile(calls)).tools:
        raise NotApplicable("the host's template has no room for tools")
    require_context(talk, CONTEXT_TOKENS_MIN)


async def _rendered(
    talk: Talk, calls: HostCalls, bodies: Sequence[Body], behind: EntryId | None = None
) -> list[Ids]:
    """Write entries one behind the other, and ask; return the tokens of each."""
    order = talk.held.order
    answer = order.generation_of(behind) if behind is not None else None
    basis = order.seal_of[behind] if behind is not None else None
    parents, written = (answer or EntryId(talk.held.id),), list[EntryId]()
    for body in bodies:
        written.append((await talk.write(body, parents=parents, basis=basis)).id)
        parents = (written[-1],)
    request = (await talk.write(talk.request_body(1), parents=parents, basis=basis)).id
    await talk.answer(request)
    tokens = dict((await rendered(talk, calls, order.seal_of[request]))[0])
    return [tuple(tokens[one]) for one in written]


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
            # A form has one spelling of white space (spec/07-host §9).
            equal(part.arguments_json, ARGUMENTS, "the arguments as the model wrote them")
        shown = b"".join(draft.data for draft in talk.drafts if draft.request == request)
        equal((text_of(answer.parts), shown), ("", b""), "the text of an answer that is a call")
