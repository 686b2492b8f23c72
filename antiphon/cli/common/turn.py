"""One turn at the command line: checks, request options, and the choices saved for the next.

A request may state its latest start (DECISIONS D56).
"""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from antiphon.cli.common.calls import check_results
from antiphon.cli.common.errors import (
    DeletedHere,
    MessageTooLong,
    NothingToContinue,
    ReadOnlyHere,
    TurnBetween,
)
from antiphon.cli.common.next_command import next_command
from antiphon.cli.common.session import Choices, Session
from antiphon.cli.views import brief, entries_at, generation_record, is_undone, words_of
from replica.conversation import (
    Conversation,
    Place,
    calls_ahead,
    goes_behind,
    place_at,
    queued_place,
    removal_of,
    retry_place,
)
from replica.errors import AntiphonError, StoreError, with_step
from replica.ids import ConversationId, EntryId, PublicKey, short
from replica.io import Replica, RequestOptions, TurnEvent, answers, begin, now_ms, turns
from replica.limits import BODY_BYTES_MAX
from replica.log import CONTINUABLE, Conflict, FinishReason, Generation, Kind, Message, Part, Tools
from replica.log import Text as TextPart
from replica.order import SealNode, is_open
from replica.refusals import ArgumentInvalid, ConversationUnknown

FORM_FIELDS = ("response_format", "tool_choice", "tool_name")
"""Changes that are fields of a request, not sampling parameters."""
TEXT_BYTES_MAX = BODY_BYTES_MAX - 256
"""Bytes of a body without salt and framing."""
WITHIN_S_MAX = 1e9
"""Seconds, about thirty years; a longer time for an answer to begin is as good as none."""


def check_text(text: str) -> str:
    """Return the text if it fits an entry. Raises ArgumentInvalid, MessageTooLong."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ArgumentInvalid("the text is not valid UTF-8") from error
    if size > TEXT_BYTES_MAX:
        raise MessageTooLong(f"the text has {size:,} bytes, and {TEXT_BYTES_MAX:,} fit")
    return text


def raise_refusal(generation: Generation, next_step: str) -> None:
    """Raise the host's refusal if `generation` is one, with a step that can be taken here.

    What was refused is in the context of every message behind it.
    """
    try:
        turns.raise_if_refused(generation)
    except AntiphonError as error:
        with_step(error, next_step)
        raise


def may_write(replica: Replica, held: Conversation) -> bool:
    """Say whether this replica's key may write messages."""
    membership = held.log.membership
    return membership.is_member(replica.public) and membership.may_write(
        replica.public, Kind.MESSAGE
    )


def check_role(replica: Replica, held: Conversation) -> None:
    """Raise unless this key may write now: ReadOnlyHere, KeyRemoved, ConversationDamaged."""
    held.require_whole()
    removal = removal_of(held, replica.public)
    if removal is not None:
        raise removal
    if not may_write(replica, held):
        raise ReadOnlyHere(f"your key {short(replica.public)} is no writer of {short(held.id)}")


def options_for(
    replica: Replica,
    held: Conversation,
    *,
    host: PublicKey | None = None,
    changes: dict[str, Any] | None = None,
) -> RequestOptions:
    """Return the request options with `changes`; for the sampling see `sampling_to_state`.

    Without a seed a random one is drawn, so that every answer can be reproduced.
    Raises HostMissing, or ArgumentInvalid for a profile that the host doesn't offer.
    """
    given = {name: value for name, value in (changes or {}).items() if value is not None}
    within_s = given.pop("answer_within_s", None)
    answer_by_ms = 0
    if within_s is not None:
        # Of a clock before 1970 too it is a time, so that the author names the clock.
        answer_by_ms = max(1, now_ms() + int(min(within_s, WITHIN_S_MAX) * 1000))
    form = {name: given.pop(name) for name in FORM_FIELDS if name in given}
    return begin.request_options(
        replica,
        held,
        host=host,
        profile=given.pop("profile", None),
        changes=given,
        output_tokens_max=given.pop("output_tokens_max", None),
        answer_by_ms=answer_by_ms,
        **form,
    )


async def write_turn(
    session: Session,
    replica: Replica,
    held: Conversation,
    text: str | None,
    place: Place,
    options: RequestOptions,
    choices: Choices,
) -> answers.Asked:
    """Write the turn; the next message follows its request. Durable here when it returns.

    `choices` are those by which the place was found. Raises ReadOnlyHere, and the errors of
    `Replica.append_chain`.
    """
    check_role(replica, held)
    check_results(held, place)
    parts: tuple[Part, ...] = (TextPart(text),) if text is not None else ()
    asked = await turns.say_and_request(replica, held.id, parts, place, options)
    await _follow_branch(session, replica, held, asked, choices)
    return asked


async def _follow_branch(
    session: Session, replica: Replica, held: Conversation, asked: answers.Asked, choices: Choices
) -> None:
    """Let the next command go on behind a request, unless another process chose otherwise."""
    saved = await session.choices(replica.store, held.id)
    if saved.at in ("", choices.at):
        saved.at, saved.branch = "", asked.request.hex()
        await choose_behind(session, replica, held.id, saved, "switch", short(asked.request))


async def choose_behind(
    session: Session, replica: Replica, conversation: ConversationId, choices: Choices, *step: str
) -> None:
    """Save the choices for the next message behind one that is written.

    A failure, as of a full disk, is told with the command that makes the choice: with an error
    the message would be written again.
    """
    try:
        await session.choose_next(replica.store, conversation, choices)
    except StoreError as error:
        command = next_command(session.settings, *step, short(conversation))
        session.out.note(
            f"this is written; where the next message goes is not saved: {brief(error)};"
            f" {command} sets it"
        )


def continued_place(held: Conversation, place: Place) -> Place:
    """Return the place of a request that goes on with the last answer of a branch.

    Behind an entry that was chosen it forks, so nothing comes in between. Raises
    NothingToContinue unless that answer was cut off, and TurnBetween where another turn follows
    it, or is queued there: the request would open a turn of its own behind that.
    """
    there = place_at(held, _cut_answer(held, place))
    if place.conflict is Conflict.FORK:
        return there
    queued = replace(there, conflict=Conflict.QUEUE)
    end = goes_behind(held, queued)
    if end is None or end.id != queued.basis or _is_queued(held, end):
        raise TurnBetween
    return queued


def _cut_answer(held: Conversation, place: Place) -> EntryId:
    """Return the last answer before a place. Raises NothingToContinue unless it was cut off."""
    for entry in reversed(entries_at(held, place)):
        body = held.log.body(entry.id)
        if isinstance(body, Generation) and body.finish_reason == FinishReason.REFUSED:
            continue  # it has no words: also where the rest was asked for twice at once
        if isinstance(body, Message | Generation) and not is_undone(held, entry):
            if isinstance(body, Generation) and body.finish_reason in CONTINUABLE:
                return entry.id
            break
    raise NothingToContinue


def continuable(held: Conversation, place: Place) -> EntryId | None:
    """Return the answer with which a request that continues at a place goes on; None for none."""
    try:
        there = continued_place(held, place)
    except NothingToContinue:
        return None
    # A request there would wait for results of the calls that the cut answer made.
    return there.parents[0] if not calls_ahead(held, there) else None


def _is_queued(held: Conversation, end: SealNode) -> bool:
    """Say whether an open request is queued behind the end of a branch."""
    order, entries = held.order, held.log.entries
    waiting = (i for i in order.unanswered.latest() if is_open(order, entries[i]))
    places = filter(None, (queued_place(held, i) for i in waiting))
    return any(goes_behind(held, place) is end for place in places)


def continued_form(held: Conversation, place: Place) -> dict[str, Any]:
    """Return the form and the choice of tools that the answer right before a place has.

    The host goes on with the grammar in the middle of the answer, so they stay in force.
    """
    asked = held.log.entries[place.parents[0]].header.parents[0]
    node = held.order.nodes.get(asked)
    request = held.order.request(node.seal.request if node is not None else asked)
    return {name: getattr(request, name) for name in FORM_FIELDS} if request is not None else {}


def again_place(held: Conversation, place: Place) -> Place:
    """Return the place of another answer to the last question of a branch, beside its answer.

    Where nothing answers the last message yet, it is the place itself.
    """
    standing = (e for e in reversed(entries_at(held, place)) if not is_undone(held, e))
    for entry in standing:
        if entry.header.kind == Kind.GENERATION:
            answered = held.order.nodes.get(entry.header.parents[0])
            request = answered.seal.request if answered is not None else entry.header.parents[0]
            return retry_place(held, request)
        if entry.header.kind == Kind.MESSAGE:
            break
    return place


async def run_turn(
    session: Session,
    replica: Replica,
    held: Conversation,
    text: str | None,
    place: Place,
    options: RequestOptions,
    *,
    choices: Choices,
    silence_max_s: float | None = None,
    tools: Tools | None = None,
    result_of: str | None = None,
) -> AsyncIterator[TurnEvent]:
    """Write the turn and yield its events; the next message follows this request.

    `choices` are those by which the place was found. Raises ReadOnlyHere, DeletedHere, and the
    errors of `turns.ask`.
    """
    check_role(replica, held)
    check_results(held, place)
    events = turns.ask(
        replica,
        held.id,
        text,
        place,
        options,
        silence_max_s=silence_max_s,
        tools=tools,
        result_of=result_of,
    )
    try:
        async for event in events:
            if isinstance(event, answers.Asked):
                await _follow_branch(session, replica, held, event, choices)
            yield event
    except ConversationUnknown as error:
        if await replica.store.has(held.id):
            raise
        raise DeletedHere from error


def turn_record(
    held: Conversation, asked: answers.Asked | None, finished: answers.Finished | None
) -> dict[str, Any]:
    """Return a turn as a JSON object."""
    record: dict[str, Any] = {"conversation": held.id.hex()}
    if asked is not None:
        record["message"] = asked.message.hex() if asked.message is not None else None
        record["request"] = asked.request.hex()
    if finished is not None:
        record["generation"] = finished.id.hex()
        record |= generation_record(finished.generation)
        record["text"] = words_of(finished.generation.parts)
    return record
