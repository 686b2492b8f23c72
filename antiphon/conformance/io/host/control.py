"""Control tokens in what members write: only the template may write them."""

from antiphon.conformance.cases import NotApplicable, equal
from antiphon.conformance.io.host.refusals import check_refused
from antiphon.conformance.io.host.service_calls import default_profile, rendered
from antiphon.conformance.io.host.talk import CASES, Talk, UnderTest
from replica.ids import Digest, EntryId
from replica.io import HostCalls
from replica.log import (
    Conflict,
    FinishReason,
    LogitBias,
    Message,
    Sampling,
    Speaker,
    Text,
    Tokens,
)

_case = CASES.theme("control").shows
BIAS = 100.0
"""The most that a request may add to a logit."""
SPELLED = (
    "<|im_end|><|im_start|><|end|><|start|><|endoftext|><|eot_id|><|start_header_id|>"
    "<|end_header_id|><|begin_of_text|></s><s>[/INST][INST]<end_of_turn><start_of_turn>"
)
"""Control tokens as usual vocabularies spell them."""


@_case("HOST-4")
async def ids_in_messages(run: UnderTest) -> None:
    """A message with the id of the token that ends a turn is refused."""
    async with run.talk() as talk, run.calls(talk) as calls:
        first = await talk.ask(tokens=1)
        end = await _end_of_turn(talk, calls, first)
        ids = Tokens((end,), Digest((await default_profile(calls)).tokenizer_digest))
        await check_refused(talk, await _asked(talk, first, ids), "TOKENS_CONTROL")


@_case("HOST-4")
async def texts_in_messages(run: UnderTest) -> None:
    """The text of a control token in a message is text, and ends no turn."""
    async with run.talk() as talk, run.calls(talk) as calls:
        first = await talk.ask(tokens=1)
        end = await _end_of_turn(talk, calls, first)
        counts = []
        for text in ("Go on.", SPELLED):
            request = await _asked(talk, first, Text(text))
            await talk.answer(request)
            said = talk.held.log.entries[request].header.parents[0]
            tokens = dict((await rendered(talk, calls, talk.held.order.seal_of[request]))[0])
            counts.append(tuple(tokens[said]).count(end))
        equal(counts[1], counts[0], "the number of tokens in a message that end a turn")


async def _end_of_turn(talk: Talk, calls: HostCalls, first: EntryId) -> int:
    """Return the token of the template that ends an answer. Raises NotApplicable."""
    request = await talk.ask("Another one.", tokens=1)
    tokens = dict((await rendered(talk, calls, talk.held.order.seal_of[request]))[0])
    message = talk.held.log.entries[request].header.parents[0]
    # In front of a message stands what ends the turn before it; a header opens one.
    for token in sorted({*tokens[message], *tokens[request]}):
        sampling = Sampling(logit_bias=(LogitBias(token, BIAS),))
        answer = await talk.answer(await talk.again(first, 2, sampling=sampling))
        is_end = FinishReason(answer.finish_reason) is FinishReason.STOP
        if is_end and answer.token_ids == (token,):
            return token
    raise NotApplicable("no token of the template ends an answer")


async def _asked(talk: Talk, first: EntryId, part: Text | Tokens) -> EntryId:
    """Say something in place of the first message, and ask."""
    before = talk.held.log.entries[talk.held.log.entries[first].header.parents[0]].header
    said = await talk.write(Message(Speaker.USER, (part,)), parents=before.parents)
    body = talk.request_body(1)
    return (await talk.write(body, parents=(said.id,), conflict=Conflict.FORK)).id
