"""Answers of a given form, and calls of tools, on a real hub and host.

The forms hold whatever the weights say, so that the small model shows most of them.
"""

import asyncio
import json
import re
from typing import Any

import jsonschema
import pytest
from structlog.testing import capture_logs

from model_host.grammar import Grammar, Grammars, GrammarSource, grammar
from model_host.grammar_engine import ENGINE
from model_host.refusals import GrammarInvalid, ObligationsOpen, ToolChoiceInvalid
from replica.conversation import Cause, Outcome
from replica.errors import HostError
from replica.log.body import (
    FinishReason,
    FormatKind,
    Generation,
    Message,
    Request,
    ResponseFormat,
    Sampling,
    Speaker,
    Text,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    ToolResult,
    Tools,
    text_of,
)
from replica.log.entry import Conflict
from tests.model_host.io.held_steps import held_after
from tests.model_host.io.replaying import replay
from tests.model_host.io.served_host import ServedHost
from tests.support.callers import until
from tests.support.talk import Talk

SEEDED = Sampling(temperature=0.9, top_p=0.95, seed=11)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "languages": {"type": "array", "items": {"enum": ["en", "fr", "de"]}, "maxItems": 3},
    },
    "required": ["name", "age", "languages"],
    "additionalProperties": False,
}
WORD = {"type": "string", "maxLength": 12}
WORDS = {"type": "array", "items": WORD, "minItems": 8, "maxItems": 8}
TOO_LARGE = "((a{1,1000}){1,1000}){1,1000}"
LARK = 'start: item ("," item){2} "."\nitem: /[a-z]{3,8}/ " " NUMBER\nNUMBER: /[1-9][0-9]?/'
CITY = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", "Rome", "Oslo"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = ToolDefinition("weather", "Forecast of the weather in a city.", json.dumps(CITY))
CLOCK = ToolDefinition(
    "clock", "The time now.", '{"type": "object", "additionalProperties": false}'
)


def schema(value: object) -> ResponseFormat:
    return ResponseFormat(FormatKind.JSON_SCHEMA, json.dumps(value))


def calls_of(answer: Generation) -> list[ToolCall]:
    return [part for part in answer.parts if isinstance(part, ToolCall)]


async def offered(talk: Talk, *tools: ToolDefinition) -> None:
    await talk.add(Tools(tools))


@pytest.mark.parametrize("sampling", [Sampling(), SEEDED], ids=["greedy", "drawn"])
async def test_an_answer_obeys_its_schema(served: ServedHost, sampling: Sampling):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        request, answer = await talk.ask(
            "Describe Marie Curie.", tokens=120, sampling=sampling, response_format=schema(PERSON)
        )
    assert answer.finish_reason == FinishReason.STOP
    assert answer.finish_detail == "the form is complete"
    jsonschema.validate(json.loads(text_of(answer.parts)), PERSON)
    assert talk.shown(request) == text_of(answer.parts)
    assert answer.grammar_engine == ENGINE
    assert answer.grammar_digest is not None


async def test_an_answer_obeys_its_expression_and_the_next_one_is_free(served_real: ServedHost):
    async with served_real.host() as host:
        talk = await Talk.begin(served_real.replica, host.key)
        wanted = ResponseFormat(FormatKind.REGEX, "(yes|no), because [a-z ]{5,30}\\.")
        _, answer = await talk.ask(
            "Is the sky blue?", tokens=60, sampling=SEEDED, response_format=wanted
        )
        assert re.fullmatch(wanted.text, text_of(answer.parts))
        _, free = await talk.ask("What is the capital of France?")
        assert "paris" in text_of(free.parts).lower()
        assert (free.grammar_engine, free.grammar_digest) == ("", None)


async def test_an_answer_obeys_its_grammar(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        wanted = ResponseFormat(FormatKind.LARK, LARK)
        _, answer = await talk.ask(
            "List fruits with amounts.", tokens=120, sampling=SEEDED, response_format=wanted
        )
    item = "[a-z]{3,8} [1-9][0-9]?"
    assert re.fullmatch(rf"{item}(,{item}){{2}}\.", text_of(answer.parts))


async def test_a_restarted_host_goes_on_in_the_middle_of_a_grammar(served: ServedHost):
    with held_after(16):
        async with served.host() as host:
            talk = await Talk.begin(served.replica, host.key)
            await talk.say("Name eight animals.")
            request = await talk.request(sampling=SEEDED, tokens=150, response_format=schema(WORDS))
            assert await served.replica.wait_for(lambda: len(talk.shown(request)) > 12, 30)
    assert talk.held.order.answer(request) is None
    shown = talk.shown(request)
    async with served.host():
        answer = await talk.answer(request)
        again = await talk.answer(await talk.regenerate(request))
    assert text_of(answer.parts).startswith(shown)
    assert (answer.usage.first_token_us, answer.usage.decode_us) == (0, 0), "no clock saw it all"
    assert again.usage.decode_us > 0
    assert len(json.loads(text_of(answer.parts))) == 8
    assert answer.token_ids == again.token_ids
    assert answer.grammar_digest == again.grammar_digest


async def test_a_continued_answer_keeps_its_form(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.say("Name eight animals.")
        whole = await talk.request(sampling=SEEDED, tokens=150, response_format=schema(WORDS))
        in_one_go = await talk.answer(whole)
        message = talk.held.log.entries[whole].header.parents[0]
        part = await talk.request(
            at=message, sampling=SEEDED, tokens=9, response_format=schema(WORDS)
        )
        first = await talk.answer(part)
        assert first.finish_reason == FinishReason.LENGTH
        node = talk.held.order.nodes[talk.held.order.seal_of[part]]
        body = Request(host.key, SEEDED, output_tokens_max=150, response_format=schema(WORDS))
        rest = await talk.replica.append(talk.id, body, parents=(node.generation,), basis=node.id)
        second = await talk.answer(rest.id)
    assert (*first.token_ids, *second.token_ids) == in_one_go.token_ids


async def test_a_required_call_has_valid_arguments_and_its_result_is_read(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await offered(talk, WEATHER, CLOCK)
        request, answer = await talk.ask(
            "How is the weather in Rome?",
            tokens=100,
            tool_choice=ToolChoice.NAMED,
            tool_name="weather",
        )
        (call,) = calls_of(answer)
        assert answer.finish_reason == FinishReason.TOOL_CALLS
        assert (call.name, call.call_id) == ("weather", f"{request.hex()[:24]}-0")
        jsonschema.validate(json.loads(call.arguments_json), CITY)
        assert text_of(answer.parts) == talk.shown(request) == ""
        result = Message(Speaker.TOOL, (ToolResult(call.call_id, (Text("Sunny."),)),))
        await talk.add(result)
        after = await talk.answer(await talk.request())
        assert after.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
        assert not talk.held.order.void


async def test_required_calls_call_what_is_there(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await offered(talk, WEATHER, CLOCK)
        _, answer = await talk.ask(
            "What time is it?", tokens=120, sampling=SEEDED, tool_choice=ToolChoice.REQUIRED
        )
        calls = calls_of(answer)
        assert calls
        for call in calls:
            wanted = json.loads({"weather": WEATHER, "clock": CLOCK}[call.name].parameters_json)
            jsonschema.validate(json.loads(call.arguments_json), wanted)


async def test_a_model_that_may_call_may_also_answer(served_real: ServedHost):
    async with served_real.host() as host:
        talk = await Talk.begin(served_real.replica, host.key)
        await offered(talk, CLOCK)
        for choice in (ToolChoice.AUTO, ToolChoice.NONE):
            _, answer = await talk.ask("Say hello.", tool_choice=choice)
            assert "<tool_call>" not in text_of(answer.parts)
            assert answer.grammar_engine == ENGINE
            for call in calls_of(answer):
                assert call.name == "clock"
                assert choice != ToolChoice.NONE


async def test_a_question_asked_while_a_tool_runs_waits_for_its_result(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await offered(talk, CLOCK)
        request, answer = await talk.ask(
            "What time is it?", tokens=60, tool_choice=ToolChoice.NAMED, tool_name="clock"
        )
        (call,) = calls_of(answer)
        node = talk.held.order.nodes[talk.held.order.seal_of[request]]
        seal, answered = node.id, node.generation
        asked = Request(host.key, Sampling(), output_tokens_max=3)

        async def ask(parent: Any, conflict: Conflict = Conflict.QUEUE) -> Any:
            entry = await talk.replica.append(
                talk.id, asked, parents=(parent,), basis=seal, conflict=conflict
            )
            return entry.id

        waiting = await ask(answered)
        forked = await talk.answer(await ask(answered, Conflict.FORK))
        assert forked.finish_detail.startswith(f"{ObligationsOpen.reason}: ")
        assert call.call_id in forked.finish_detail
        assert talk.held.order.answer(waiting) is None
        result = Message(Speaker.TOOL, (ToolResult(call.call_id, (Text("Noon."),)),))
        said = await talk.replica.append(talk.id, result, parents=(answered,), basis=seal)
        await talk.answer(await ask(said.id))
        late = await talk.answer(waiting)
        assert late.finish_reason == FinishReason.LENGTH
        assert not talk.held.order.void


async def test_constrained_answers_in_one_batch_are_those_of_each_alone(served: ServedHost):
    forms = [
        schema(PERSON), schema(WORDS), ResponseFormat(FormatKind.LARK, LARK),
        ResponseFormat(FormatKind.REGEX, "([A-Z][a-z]{2,9} ){6}"), None,
    ]  # fmt: skip
    async with served.host() as host:
        talks = [await Talk.begin(served.replica, host.key) for _ in forms]
        for talk in talks:
            await talk.say("Describe a fruit.")
        with held_after(0):
            requests = [
                await talk.request(sampling=SEEDED, tokens=16, response_format=form)
                for talk, form in zip(talks, forms, strict=True)
            ]
            await until(lambda: host.host.running == len(forms))
        answers = await asyncio.gather(
            *(talk.answer(request) for talk, request in zip(talks, requests, strict=True))
        )
        assert host.thread.counts.batch.steps < sum(len(answer.token_ids) for answer in answers)
        for talk, request, answer in zip(talks, requests, answers, strict=True):
            alone = await talk.answer(await talk.regenerate(request))
            assert alone.token_ids == answer.token_ids


REFUSED: list[tuple[type[HostError], dict[str, Any]]] = [
    (GrammarInvalid, {"response_format": ResponseFormat(FormatKind.REGEX, "(")}),
    (GrammarInvalid, {"response_format": ResponseFormat(FormatKind.LARK, "start: nope")}),
    (GrammarInvalid, {"response_format": schema({"type": "nothing"})}),
    (GrammarInvalid, {"response_format": ResponseFormat(FormatKind.JSON_SCHEMA, "{")}),
    (GrammarInvalid, {"response_format": ResponseFormat(FormatKind.REGEX, TOO_LARGE)}),
    (ToolChoiceInvalid, {"tool_choice": ToolChoice.REQUIRED}),
]


async def test_the_log_of_a_host_does_not_repeat_what_it_refuses(served: ServedHost):
    """It held the expression, as the engine's words quote it."""
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.say("Hello.")
        with capture_logs() as lines:
            form = ResponseFormat(FormatKind.REGEX, "(confidential")
            answer = await talk.answer(await talk.request(response_format=form))
        assert "confidential" in answer.finish_detail
        assert "confidential" not in str(lines)
        (refused,) = (line for line in lines if line["event"] == "refused")
        assert refused["reason"] == GrammarInvalid.reason


async def test_forms_and_choices_that_can_not_be_followed_are_refused(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.say("Hello.")
        for refusal, fields in REFUSED:
            answer = await talk.answer(await talk.request(**fields))
            assert answer.finish_reason == FinishReason.REFUSED
            assert answer.finish_detail.startswith(f"{refusal.reason}: ")
            assert answer.finish_detail.endswith(f" {refusal.next_step}")


async def test_a_grammar_that_gets_stuck_ends_its_answer_alone(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        stuck = ResponseFormat(FormatKind.REGEX, "ab\x04c")  # no token has this byte
        _, answer = await talk.ask("Hello.", response_format=stuck)
        assert answer.finish_reason == FinishReason.INTERRUPTED
        assert answer.finish_detail.startswith("GRAMMAR_FAILED: ")
        assert text_of(answer.parts) == "ab"
        _, more = await talk.ask("Hello.", tokens=3)
        assert more.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)


async def test_a_replay_compiles_each_grammar_once_and_bounds_them(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    compiled: list[GrammarSource] = []
    compile_one = Grammars.compile

    def counting(grammars: Grammars, source: GrammarSource, continued=()) -> Grammar:
        compiled.append(source)
        return compile_one(grammars, source, continued)

    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        answers = []
        for text in ("yes|no", "[a-z]{3,9}"):
            wanted = ResponseFormat(FormatKind.REGEX, text)
            for _ in range(3):
                await talk.say("And now?")
                request = await talk.request(tokens=1, response_format=wanted)
                await talk.answer(request)
                answers.append(request)
            await talk.answer(await talk.request(tokens=4, response_format=wanted))
        monkeypatch.setattr(Grammars, "compile", counting)
        got = await replay(talk, host)
        assert got.receipt.outcome == Outcome.ACCEPTED
        assert len(compiled) == len({*compiled}) == 2
        monkeypatch.setattr(grammar, "REPLAY_GRAMMAR_BYTES_MAX", len(compiled[0].text))
        got = await replay(talk, host)
        assert got.of(talk, answers[0]).outcome == Outcome.ACCEPTED
        found = got.of(talk, answers[-1])
        assert (found.outcome, found.cause) == (Outcome.UNDECIDED, Cause.SAMPLING_UNKNOWN)
        assert found.detail.startswith("REPLAY_TOO_LARGE: the grammars")
