"""Characters: bytes that are no UTF-8, and characters whose bytes are tokens of their own."""

from collections.abc import Sequence

from antiphon.conformance.cases import NotApplicable, check, equal
from antiphon.conformance.io.host.service_calls import rendered
from antiphon.conformance.io.host.talk import CASES, Talk, UnderTest
from replica.ids import EntryId
from replica.io import HostCalls
from replica.log import LogitBias, Request, Sampling, text_of

_case = CASES.theme("characters").shows
RARE = ("\U000f1234", "\U0010abcd", "\U000e1f2b")
"""Characters of four different bytes each, which a tokenizer hardly joins."""
NEAR = ("\ud7b0", "\ud7bb", "\ud7fb")
"""Characters of three different bytes each, the first and the last of which begin a surrogate."""
FIRST, LAST = 100.0, 40.0
"""Biases of the tokens of a cycle: far beyond the logits of all other tokens."""
SHOWN = "\ufffd"


@_case("HOST-16")
async def undecodable_bytes(run: UnderTest) -> None:
    """Bytes that are no UTF-8 are shown and counted as U+FFFD, one per maximal subpart."""
    async with run.talk() as talk, run.calls(talk) as calls:
        begin, second, third, _ = (await _single_bytes(talk, calls))[1]
        await talk.say()
        first = None
        for cycle, count, shown in (
            ((third,), 3, 3),
            ((begin,), 3, 2),  # the last one may still become a character
            ((begin, second, third), 7, 2),
            ((begin, second), 4, 1),
        ):
            body = _cyclic(talk, cycle, count)
            if first is None:
                first = request = (await talk.write(body)).id
            else:
                request = await talk.again(first, count, sampling=body.sampling)
            wanted = [cycle[index % len(cycle)] for index in range(count)]
            await _check_shown(talk, request, wanted, SHOWN * shown)


@_case("HOST-16")
async def surrogates(run: UnderTest) -> None:
    """The first two bytes of a surrogate can't become a character: they are shown as broken."""
    async with run.talk() as talk, run.calls(talk) as calls:
        begin, _, last = (await _single_bytes(talk, calls, NEAR))[1]
        await talk.say()
        request = (await talk.write(_cyclic(talk, (begin, last), 2))).id
        await _check_shown(talk, request, [begin, last], 2 * SHOWN)


@_case("HOST-16", "HOST-17")
async def characters_in_pieces(run: UnderTest) -> None:
    """A character is shown once it is whole, be it in the answer that continues this one."""
    async with run.talk() as talk, run.calls(talk) as calls:
        character, ids = await _single_bytes(talk, calls)
        await talk.say()
        request = (await talk.write(_cyclic(talk, ids, 6))).id
        await _check_shown(talk, request, [*ids, *ids[:2]], character)
        order = talk.held.order
        answer, basis = order.generation_of(request), order.seal_of[request]
        assert answer is not None, "it is answered"
        body = _cyclic(talk, ids, 2)
        behind = (await talk.write(body, parents=(answer,), basis=basis)).id
        await _check_shown(talk, behind, ids[2:], character)


async def _single_bytes(
    talk: Talk, calls: HostCalls, characters: Sequence[str] = RARE
) -> tuple[str, Sequence[int]]:
    """Return a character and the tokens of its bytes. Raises NotApplicable where it has others."""
    for character in characters:
        size = len(character.encode())
        request = await talk.ask(2 * character, tokens=1)
        said = talk.held.log.entries[request].header.parents[0]
        ids = dict((await rendered(talk, calls, talk.held.order.seal_of[request]))[0])[said]
        # As many tokens as bytes, at the end of the message: each is one of the bytes.
        if ids[-size:] == ids[-2 * size : -size] and len({*ids[-size:]}) == size:
            return character, ids[-size:]
    raise NotApplicable("the host's tokenizer has no tokens of single bytes for rare characters")


def _cyclic(talk: Talk, cycle: Sequence[int], count: int) -> Request:
    """Return a request for an answer of these tokens, again and again."""
    step = (FIRST - LAST) / max(len(cycle) - 1, 1)
    pairs = sorted((token, FIRST - step * index) for index, token in enumerate(cycle))
    sampling = Sampling(logit_bias=tuple(LogitBias(*pair) for pair in pairs))
    if len(cycle) > 1:
        window = {"presence_penalty": FIRST, "penalty_window": len(cycle) - 1}
        sampling = Sampling(logit_bias=sampling.logit_bias, **window)  # type: ignore[arg-type]
    return talk.request_body(count, sampling=sampling)


async def _check_shown(talk: Talk, request: EntryId, wanted: Sequence[int], text: str) -> None:
    """Check the text and the drafts of an answer, which must have the tokens that are wanted."""
    answer = await talk.answer(request)
    if answer.token_ids != tuple(wanted):
        raise NotApplicable("bias and penalty do not decide the tokens of an answer")
    equal(text_of(answer.parts), text, "the text of an answer")
    equal(answer.visible_bytes, len(text.encode()), "the visible bytes")
    shown = [draft.data for draft in talk.drafts if draft.request == request]
    check(text.encode().startswith(b"".join(shown)), "the drafts show other bytes than the answer")
    for data in shown:
        check(data.decode(errors="replace").encode() == data, "a draft shows half a character")
