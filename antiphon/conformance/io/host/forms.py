"""Constrained answers: masks, digests of grammars, and grammars that take too much."""

import re

from antiphon.conformance.cases import NotApplicable, check, equal
from antiphon.conformance.io.host.refusals import check_refused
from antiphon.conformance.io.host.service_calls import default_profile, rendered
from antiphon.conformance.io.host.talk import CASES, Talk, UnderTest
from replica.ids import tagged_sha256
from replica.log import (
    FinishReason,
    FormatKind,
    Generation,
    LogitBias,
    ResponseFormat,
    Sampling,
    text_of,
)

_case = CASES.theme("forms").shows
FORM = ResponseFormat(FormatKind.REGEX, "[a-f]{6}")
ENGINE = "llguidance"
GIVEN = b'{"grammars":[{"name":"answer","lark_grammar":"start: /[a-f]{6}/"}]}'
"""The form as that engine is given it (spec/vectors/grammar.json)."""
TOO_LARGE = ResponseFormat(FormatKind.REGEX, "((a{1,1000}){1,1000}){1,1000}")
BIAS = 100.0
"""The most that a request may add to a logit."""


async def _engine(run: UnderTest, talk: Talk) -> str:
    async with run.calls(talk) as calls:
        engine = (await default_profile(calls)).grammar_engine
    if not engine:
        raise NotApplicable("the host constrains no answers")
    return engine


@_case("HOST-45")
async def control_tokens(run: UnderTest) -> None:
    """A form is kept whatever the request adds to the logits of the template's tokens."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await _engine(run, talk)
        first = await talk.ask(tokens=1)
        request = await talk.ask(tokens=1)
        # The header of an answer has the tokens that end a turn, and those that open one.
        seal = talk.held.order.seal_of[request]
        tokens = dict((await rendered(talk, calls, seal))[0])
        header = sorted({i for one in (first, request) for i in tokens[one]})
        sampling = Sampling(logit_bias=tuple(LogitBias(i, BIAS) for i in header))
        biased = await talk.again(request, 40, sampling=sampling, response_format=FORM)
        answer = await talk.answer(biased)
        text = text_of(answer.parts)
        check(re.fullmatch(FORM.text, text), f"the answer has not the form asked for: {text!r}")
        equal(FinishReason(answer.finish_reason), FinishReason.STOP, "the finish reason")


@_case("HOST-46")
async def digests_of_grammars(run: UnderTest) -> None:
    """An answer states the engine and digest of its grammar; one without a grammar, neither."""
    async with run.talk() as talk:
        engine = await _engine(run, talk)
        other = ResponseFormat(FormatKind.REGEX, "[g-k]{6}")
        first = await talk.ask(tokens=10, response_format=FORM)
        answers = [await talk.answer(first)]
        for form in (FORM, other, None):
            answers.append(await talk.answer(await talk.again(first, 10, response_format=form)))
        stated = [answer.grammar_engine for answer in answers]
        equal(stated, [engine, engine, engine, ""], "the engines")
        one, same, another, none = map(_digest_of, answers)
        equal(len(one), 32, "the length of a grammar's digest")
        equal(same, one, "the digest of the same grammar")
        check(another != one, "two grammars have one digest")
        equal(none, b"", "the digest of an answer without a grammar")
        if engine.startswith(ENGINE):
            equal(one, tagged_sha256(b"antiphon/v1/grammar", GIVEN), "the digest of a grammar")


def _digest_of(answer: Generation) -> bytes:
    return answer.grammar_digest or b""


@_case("HOST-47")
async def grammar_that_takes_too_much(run: UnderTest) -> None:
    """A grammar is refused, breaks off or is kept in bounded time; the next request is answered."""
    async with run.talk() as talk:
        await _engine(run, talk)
        await talk.say()
        request = await talk.request(response_format=TOO_LARGE)
        answer = await talk.closed(request)
        match answer.finish_reason:
            case FinishReason.REFUSED:
                await check_refused(talk, request, "GRAMMAR_INVALID")
            case FinishReason.INTERRUPTED:
                word = answer.finish_detail.partition(":")[0]
                equal(word, "GRAMMAR_FAILED", "the reason of an answer that broke off")
            case _:  # an engine for which it takes little
                check(set(text_of(answer.parts)) <= {"a"}, "the answer has not the form asked for")
        await talk.answer(await talk.request())
