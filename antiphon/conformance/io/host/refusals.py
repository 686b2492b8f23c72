"""Requests that a host must refuse, each with its reason and without a seal."""

import re
from dataclasses import replace
from math import inf, nan

from antiphon.conformance.cases import check, equal
from antiphon.conformance.io.host.service_calls import default_profile
from antiphon.conformance.io.host.talk import CASES, Talk, UnderTest
from replica.conversation import call_digest, key_digest
from replica.ids import Digest, EntryId
from replica.io import now_ms
from replica.log import (
    CallKey,
    Conflict,
    FinishReason,
    FormatKind,
    LogitBias,
    Media,
    Message,
    ResponseFormat,
    Sampling,
    Speaker,
    Text,
    Tokens,
    ToolChoice,
)

_case = CASES.theme("refusals").shows
_FAR = 2**31
_HOUR_MS = 3_600_000
_NO_CHOICE = 99
"""A number of no choice."""


async def check_refused(talk: Talk, request: EntryId, *reasons: str) -> None:
    """Raise Violation unless a request is refused for one of the reasons, without a seal."""
    answer = await talk.closed(request)
    wanted, finish = " or ".join(reasons), FinishReason(answer.finish_reason)
    name = f"the finish reason of a request to refuse with {wanted}"
    equal(finish, FinishReason.REFUSED, name)
    word = answer.finish_detail.partition(":")[0]
    check(word in reasons, f"the reason is {word}, must be {wanted}")
    check(request not in talk.held.order.seal_of, "a refused request is sealed")
    equal(answer.token_ids, (), "the tokens of a refusal")


async def _refuses(run: UnderTest, reason: str, **fields: object) -> None:
    """Ask in a way that is refused, then rightly: the host goes on."""
    async with run.talk() as talk:
        await talk.say()
        await check_refused(talk, await talk.request(**fields), reason)  # type: ignore[arg-type]
        await talk.answer(await talk.request())


@_case("HOST-24")
async def sampling_out_of_range(run: UnderTest) -> None:
    """A temperature below 0 is refused."""
    await _refuses(run, "SAMPLING_INVALID", sampling=Sampling(temperature=-1.0))


@_case("HOST-24")
async def top_p_above_one(run: UnderTest) -> None:
    """A top_p above 1 is refused."""
    await _refuses(run, "SAMPLING_INVALID", sampling=Sampling(temperature=1.0, top_p=1.5))


@_case("HOST-24")
async def numbers_out_of_range(run: UnderTest) -> None:
    """Each number of the sampling has a range, and biases have an order."""
    out_of_range = (
        Sampling(temperature=1e-9), Sampling(temperature=101.0), Sampling(min_p=1.5),
        Sampling(repetition_penalty=1e-9), Sampling(repetition_penalty=101.0),
        Sampling(presence_penalty=101.0), Sampling(frequency_penalty=-101.0),
        Sampling(presence_penalty=-101.0), Sampling(frequency_penalty=101.0),
        Sampling(temperature=1.0, top_p=-0.5), Sampling(temperature=1.0, min_p=-0.5),
        _biased((1, 101.0)), _biased((1, -101.0)), _biased((2, 1.0), (1, 1.0)),
    )  # fmt: skip
    no_numbers = (
        Sampling(temperature=nan), Sampling(temperature=inf), Sampling(temperature=1.0, top_p=nan),
        _biased((1, nan)),
    )  # fmt: skip
    async with run.talk() as talk:
        right = await talk.ask(tokens=1)
        for wrong in (out_of_range, no_numbers):
            for request in [await talk.again(right, sampling=sampling) for sampling in wrong]:
                await check_refused(talk, request, "SAMPLING_INVALID")
        await talk.answer(await talk.again(right, sampling=_biased((1, 100.0), (2, -100.0))))


def _biased(*pairs: tuple[int, float]) -> Sampling:
    return Sampling(logit_bias=tuple(LogitBias(*pair) for pair in pairs))


@_case("HOST-32")
async def stop_tokens_out_of_bounds(run: UnderTest) -> None:
    """Stop tokens are 64 at most, ascend, and are of the vocabulary."""
    async with run.talk() as talk:
        await talk.say()
        for ids in ((_FAR,), tuple(range(65)), (2, 1)):
            await check_refused(talk, await talk.request(stop_tokens=ids), "STOP_INVALID")
        await talk.answer(await talk.request(stop_tokens=tuple(range(64))))


@_case("HOST-24")
async def bias_of_no_token(run: UnderTest) -> None:
    """A bias of an id outside the vocabulary is refused."""
    bias = Sampling(logit_bias=(LogitBias(_FAR, 1.0),))
    await _refuses(run, "SAMPLING_INVALID", sampling=bias)


@_case("HOST-34")
async def too_many_log_probabilities(run: UnderTest) -> None:
    """More than 20 candidates at each token are refused."""
    await _refuses(run, "SAMPLING_INVALID", logprobs=21)


@_case("HOST-2")
async def unknown_profile(run: UnderTest) -> None:
    """A profile that the host does not offer is refused, and those offered are listed."""
    async with run.talk() as talk:
        await talk.say()
        request = await talk.request(profile=Digest(b"no such profile".ljust(32, b".")))
        await check_refused(talk, request, "PROFILE_UNKNOWN")
        detail = (await talk.closed(request)).finish_detail
        for offered in talk.host.profiles:
            is_named = offered.name in detail or offered.digest.hex() in detail
            check(is_named, f"the refusal does not list the profile {offered.name}: {detail}")
        await talk.answer(await talk.request())


@_case("HOST-27")
async def expired(run: UnderTest) -> None:
    """A request whose time is over is refused, and one whose time is to come is answered."""
    async with run.talk() as talk:
        await talk.say()
        late = await talk.request(answer_by_ms=now_ms() - _HOUR_MS)
        await check_refused(talk, late, "REQUEST_EXPIRED")
        await talk.answer(await talk.request(answer_by_ms=now_ms() + _HOUR_MS))


@_case("HOST-14")
async def long_stop_string(run: UnderTest) -> None:
    """A stop string of more than 256 bytes is refused, and one of 256 is not."""
    async with run.talk() as talk:
        await talk.say()
        for stop in ("x" * 257, "é" * 129):
            await check_refused(talk, await talk.request(stop=(stop,)), "STOP_INVALID")
        await talk.answer(await talk.request(stop=("é" * 128,)))


@_case("HOST-32")
async def unordered_stop_tokens(run: UnderTest) -> None:
    """Stop tokens that do not ascend are refused."""
    await _refuses(run, "STOP_INVALID", stop_tokens=(5, 3))


@_case("HOST-44")
async def wrong_grammar(run: UnderTest) -> None:
    """A form that does not compile is refused."""
    form = ResponseFormat(FormatKind.REGEX, "(")
    await _refuses(run, "GRAMMAR_INVALID", response_format=form)


@_case("HOST-44")
async def unknown_keyword(run: UnderTest) -> None:
    """A schema with a keyword that nobody knows is refused, and not read without it."""
    schema = '{"type": "boolean", "antiphonKit": 1}'
    form = ResponseFormat(FormatKind.JSON_SCHEMA, schema)
    await _refuses(run, "GRAMMAR_INVALID", response_format=form)


@_case("HOST-44")
async def choice_without_tools(run: UnderTest) -> None:
    """A choice that demands a call is refused where no tools are offered, and an unknown one."""
    async with run.talk() as talk:
        await talk.say()
        form = ResponseFormat(FormatKind.REGEX, "[a-f]{6}")
        for fields in (
            {"tool_choice": ToolChoice.REQUIRED},
            {"tool_choice": ToolChoice.REQUIRED, "response_format": form},
            {"tool_choice": ToolChoice.NAMED, "tool_name": "weather"},
            {"tool_choice": _NO_CHOICE},
        ):
            await check_refused(talk, await talk.request(**fields), "TOOL_CHOICE_INVALID")
        await talk.answer(await talk.request())


@_case("HOST-87")
async def repeated_call(run: UnderTest) -> None:
    """A second request of one call and attempt is refused, as is one behind another message."""
    async with run.talk() as talk:
        parts = (Text("Name a colour."),)
        key = CallKey(key_digest(talk.member.public, "kit"), call_digest(parts))
        message = Message(Speaker.USER, parts, key)
        first = await talk.write(message)
        request = await talk.request(key=key)
        await talk.answer(request)
        await check_refused(talk, await talk.again(request, key=key), "CALL_REPEATED")
        await talk.answer(await talk.again(request, key=replace(key, attempt=1)))
        other = await talk.write(message, parents=first.header.parents)
        asked = talk.request_body(key=replace(key, attempt=2))
        behind = await talk.write(asked, parents=(other.id,), conflict=Conflict.FORK)
        await check_refused(talk, behind.id, "CALL_REPEATED")


@_case("HOST-128")
async def rest_behind_the_rest(run: UnderTest) -> None:
    """The second of two requests for the rest of an answer is refused, unless it forks."""
    async with run.talk() as talk:
        await talk.say()
        first = await talk.request(2, output_tokens_min=2)
        await talk.answer(first)
        order = talk.held.order
        answer, basis = order.generation_of(first), order.seal_of[first]
        assert answer is not None, "it is answered"
        body = talk.request_body(2, output_tokens_min=2)
        one, other = [(await talk.write(body, parents=(answer,), basis=basis)).id for _ in range(2)]
        await talk.answer(one)
        await check_refused(talk, other, "NOTHING_TO_CONTINUE")
        beside = await talk.write(body, parents=(answer,), basis=basis, conflict=Conflict.FORK)
        await talk.answer(beside.id)


@_case("HOST-14")
async def long_context(run: UnderTest) -> None:
    """A context without room for one token is refused."""
    async with run.talk() as talk:
        first = await talk.say()
        text = "long " * min(talk.profile.context_tokens_max, 80_000)
        await talk.say(text)
        request = await talk.request()
        await check_refused(talk, request, "CONTEXT_TOO_LONG")
        detail = (await talk.closed(request)).finish_detail
        numbers = {int(re.sub(r"\D", "", one)) for one in re.findall(r"\d[\d,_']*", detail)}
        most = talk.profile.context_tokens_max
        is_stated = most in numbers and max(numbers) > most
        check(is_stated, f"the refusal does not state the tokens, and that {most} fit: {detail}")
        right = await talk.write(talk.request_body(), parents=(first.id,))
        await talk.answer(right.id)


@_case("HOST-8")
async def media(run: UnderTest) -> None:
    """A picture is refused by a host that sees none."""
    picture = Media(Digest(bytes(32)), 10, "image/png")
    async with run.talk() as talk:
        await talk.write(Message(Speaker.USER, (Text("What is this?"), picture)))
        await check_refused(talk, await talk.request(), "MEDIA_UNSUPPORTED")


@_case("HOST-4")
async def foreign_tokens(run: UnderTest) -> None:
    """Token ids of another tokenizer are refused."""
    ids = Tokens((1, 2), Digest(b"no such tokenizer".ljust(32, b".")))
    async with run.talk() as talk:
        await talk.write(Message(Speaker.USER, (ids,)))
        await check_refused(talk, await talk.request(), "TOKENS_FOREIGN")


@_case("HOST-4")
async def tokens_beyond(run: UnderTest) -> None:
    """A token id outside the vocabulary is refused."""
    async with run.talk() as talk, run.calls(talk) as calls:
        profile = await default_profile(calls)
        ids = Tokens((_FAR,), Digest(profile.tokenizer_digest))
        await talk.write(Message(Speaker.USER, (ids,)))
        await check_refused(talk, await talk.request(), "TOKENS_FOREIGN")
