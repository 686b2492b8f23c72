"""Endings: the stop string that ends an answer, the end of the context, and what comes behind."""

from collections.abc import Iterator

from antiphon.conformance.cases import NotApplicable, check, equal
from antiphon.conformance.io.host.service_calls import require_bitwise
from antiphon.conformance.io.host.talk import CASES, SEEDED, Talk, UnderTest, long_request
from replica.ids import EntryId
from replica.log import FinishReason, text_of

_case = CASES.theme("endings").shows
LENGTHS = range(1, 9)
FILLED_TOKENS_MAX = 16_384
"""Longest context that is filled to its end."""
LEFT_TOKENS = 24


@_case("HOST-17")
async def first_stop_string(run: UnderTest) -> None:
    """The stop string that ends first ends the answer; of those that end together, the longest."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await require_bitwise(calls)
        whole = await talk.ask(tokens=24, sampling=SEEDED, output_tokens_min=24)
        text = text_of((await talk.answer(whole)).parts)
        at = next(_plain_pieces(text), None)
        if at is None:
            raise NotApplicable("no new ASCII character stands among others in the answer")
        begins_first, ends_first = text[at - 1 : at + 3], text[at + 1 : at + 2]
        longest = text[at - 1 : at + 2]
        for stops, shown in (
            ((begins_first, ends_first), text[: at + 1]),
            ((ends_first, begins_first), text[: at + 1]),
            ((ends_first, longest), text[: at - 1]),
            ((longest, ends_first), text[: at - 1]),
        ):
            stopped = await talk.again(whole, 24, sampling=SEEDED, stop=stops)
            answer = await talk.answer(stopped)
            equal(text_of(answer.parts), shown, f"the text before one of {stops}")
            equal(FinishReason(answer.finish_reason), FinishReason.STOP, "the finish reason")


def _plain_pieces(text: str) -> Iterator[int]:
    """Yield where two ASCII characters stand, the second new, between two others."""
    for at in range(1, len(text) - 2):
        piece = text[at - 1 : at + 3]
        if piece.isascii() and piece.isprintable() and text.index(piece[2]) == at + 1:
            yield at


@_case("HOST-17")
async def stop_string_at_the_limit(run: UnderTest) -> None:
    """A stop string that the last token of an answer completes comes before its limit."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await require_bitwise(calls)
        await talk.say()
        first, before = None, ""
        for length in LENGTHS:
            fields = {"sampling": SEEDED, "output_tokens_min": length}
            if first is None:
                first = request = await talk.request(length, **fields)
            else:
                request = await talk.again(first, length, **fields)
            text = text_of((await talk.answer(request)).parts)
            if text[-1:].isascii() and text[-1:] not in ("", *before):
                break
            before = text
        else:
            raise NotApplicable("no token ends with an ASCII character that is new")
        stopped = await talk.again(request, length, sampling=SEEDED, stop=(text[-1],))
        answer = await talk.answer(stopped)
        equal(FinishReason(answer.finish_reason), FinishReason.STOP, "the finish reason")
        equal(text_of(answer.parts), text[: text.index(text[-1])], "the text before the string")


@_case("HOST-14")
async def end_of_the_context(run: UnderTest) -> None:
    """An answer that fills the context ends there: CONTEXT_LIMIT, not LENGTH."""
    async with run.talk() as talk, run.calls(talk) as calls:
        most = talk.profile.context_tokens_max
        if most > FILLED_TOKENS_MAX:
            raise NotApplicable("the context is too long to fill it")
        first = await talk.ask(tokens=1)
        words = "long " * (most // 4)
        seal = talk.held.order.seal_of[first]
        counted = await calls.count_tokens(talk.held.id, text=words, at=seal)
        repeated = (most - counted.context_tokens - LEFT_TOKENS) // counted.tokens
        for _ in range(repeated):
            await talk.say(words)
        request = await talk.request(most, output_tokens_min=most)
        answer = await talk.answer(request)
        equal(FinishReason(answer.finish_reason), FinishReason.CONTEXT_LIMIT, "the finish reason")
        check(answer.usage.prompt_tokens + len(answer.token_ids) <= most, "more than the context")


@_case("HOST-7")
async def queued_behind_a_limit(run: UnderTest) -> None:
    """A request that follows an answer only because it queued opens a turn of its own."""
    async with run.talk() as talk:
        said = await talk.say()
        body = talk.request_body(3, output_tokens_min=3)
        first, second = [(await talk.write(body, parents=(said.id,))).id for _ in range(2)]
        ended = FinishReason((await talk.answer(first)).finish_reason)
        equal(ended, FinishReason.LENGTH, "the finish reason of the answer before")
        await talk.answer(second)
        check(talk.seal_of(second).tokens_per_entry[-1] > 0, "the queued request has no header")


@_case("HOST-7", "HOST-33")
async def behind_a_stop(run: UnderTest) -> None:
    """A request behind an answer that stopped opens a turn of its own."""
    async with run.talk() as talk, run.calls(talk) as calls:
        await require_bitwise(calls)
        first = await talk.ask(tokens=1)
        stop = (await talk.answer(first)).token_ids[0]
        stopped = await talk.again(first, 8, stop_tokens=(stop,))
        ended = FinishReason((await talk.answer(stopped)).finish_reason)
        equal(ended, FinishReason.STOP, "the finish reason of the answer before")
        check(await _header_behind(talk, stopped) > 0, "a request behind a STOP has no header")


@_case("HOST-7", "HOST-18")
async def behind_a_cancel(run: UnderTest) -> None:
    """A request whose parent is a cancelled answer goes on in its turn."""
    async with run.talk() as talk:
        cancelled, _ = await long_request(talk)
        await talk.cancel(cancelled)
        ended = FinishReason((await talk.answer(cancelled)).finish_reason)
        if ended is not FinishReason.CANCELLED:
            raise NotApplicable("the host answers faster than a CANCEL arrives")
        header = await _header_behind(talk, cancelled)
        equal(header, 0, "the tokens of a request that continues a cancelled answer")


async def _header_behind(talk: Talk, before: EntryId) -> int:
    """Ask right behind the answer to a request; return the tokens of that request itself."""
    order = talk.held.order
    answer, basis = order.generation_of(before), order.seal_of[before]
    assert answer is not None, "it is answered"
    request = await talk.write(talk.request_body(1), parents=(answer,), basis=basis)
    await talk.answer(request.id)
    return talk.seal_of(request.id).tokens_per_entry[-1]
