"""A turn: a message and a request to the model, written for every caller (DECISIONS D26)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from replica.conversation import (
    Conversation,
    Place,
)
from replica.ids import ConversationId, Digest, PublicKey
from replica.io.driver import Replica
from replica.io.requests.answers import Asked, TurnEvent, follow_answer
from replica.log import (
    AnswerRefused,
    Body,
    CallKey,
    Entry,
    FinishReason,
    Generation,
    Message,
    Part,
    Request,
    ResponseFormat,
    Sampling,
    Speaker,
    Text,
    ToolChoice,
    ToolResult,
    Tools,
)


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The parameters of a request."""

    host: PublicKey
    sampling: Sampling
    output_tokens_max: int = 0
    stop: tuple[str, ...] = ()
    answer_by_ms: int = 0
    """Unix milliseconds until which the host may begin; 0 for no limit."""
    profile: Digest | None = None
    """The profile that answers; None for the host's default."""
    response_format: ResponseFormat | None = None
    tool_choice: int = ToolChoice.AUTO
    tool_name: str = ""
    key: CallKey | None = None


async def say(
    replica: Replica, conversation: ConversationId, parts: tuple[Part, ...], place: Place
) -> Entry:
    """Append a user's message at `place`; durable here when it returns."""
    body = Message(Speaker.USER, parts)
    return await replica.append(conversation, body, parents=place.parents, basis=place.basis)


async def say_as_system(
    replica: Replica, conversation: ConversationId, text: str, place: Place
) -> Entry:
    """Append a system message at `place`; durable here when it returns."""
    body = Message(Speaker.SYSTEM, (Text(text),))
    return await replica.append(conversation, body, parents=place.parents, basis=place.basis)


def request_body(held: Conversation, options: RequestOptions) -> Request:
    """Return the body of a request, with the membership heads known here."""
    return Request(
        options.host,
        options.sampling,
        profile=options.profile,
        output_tokens_max=options.output_tokens_max,
        stop=options.stop,
        membership_heads=held.log.membership_heads(),
        answer_by_ms=options.answer_by_ms,
        response_format=options.response_format,
        tool_choice=options.tool_choice,
        tool_name=options.tool_name,
        key=options.key,
    )


async def say_and_request(
    replica: Replica,
    conversation: ConversationId,
    parts: tuple[Part, ...],
    place: Place,
    options: RequestOptions,
    *,
    speaker: Speaker = Speaker.USER,
    tools: Tools | None = None,
) -> Asked:
    """Append a message and a request behind it, in one frame and one commit.

    Without `parts` there is no message; `tools` are offered before it. Durable here when it
    returns.
    """
    asking = request_body(await replica.load(conversation), options)
    said = (Message(speaker, parts),) if parts else ()
    bodies: tuple[Body, ...] = (*((tools,) if tools is not None else ()), *said, asking)
    written = await replica.append_chain(
        conversation, bodies, parents=place.parents, basis=place.basis, conflict=place.conflict
    )
    return Asked(written[-2].id if said else None, written[-1].id)


async def ask(
    replica: Replica,
    conversation: ConversationId,
    text: str | None,
    place: Place,
    options: RequestOptions,
    *,
    silence_max_s: float | None = None,
    tools: Tools | None = None,
    result_of: str | None = None,
) -> AsyncIterator[TurnEvent]:
    """Append `text` (None: no message) and a request at `place`, and follow the answer.

    `tools` are offered before it; `result_of` is the call whose result the text is. Raises
    the errors of `follow_answer`. Closing the iterator stops following; the turn itself stays
    in the log.
    """
    parts: tuple[Part, ...] = (Text(text),) if text is not None else ()
    if result_of is not None:
        parts = (ToolResult(result_of, parts),)
    speaker = Speaker.TOOL if result_of is not None else Speaker.USER
    asked = await say_and_request(
        replica, conversation, parts, place, options, speaker=speaker, tools=tools
    )
    yield asked
    following = follow_answer(
        replica,
        conversation,
        asked.request,
        silence_max_s=silence_max_s,
        begin_by_ms=options.answer_by_ms,
    )
    async for event in following:
        yield event


def raise_if_refused(generation: Generation) -> None:
    """Raise AnswerRefused, with the host's reason, if `generation` is a refusal."""
    if generation.finish_reason == FinishReason.REFUSED:
        raise AnswerRefused.of(generation.finish_detail)
