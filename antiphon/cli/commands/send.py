"""`antiphon send`: send one message and print the answer.

QUEUE is the default (DECISIONS D8); --at and repeated requests ask for FORK.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from antiphon.cli.commands.cancel import may_cancel
from antiphon.cli.commands.forms import (
    ChoiceOption,
    LarkOption,
    RegexOption,
    ResultOption,
    SchemaOption,
    ToolsOption,
    choice_of,
    form_of,
    tools_of,
)
from antiphon.cli.commands.whose_branch import say_branches
from antiphon.cli.common import (
    TEXT_BYTES_MAX,
    HostPresence,
    MessageTooLong,
    Session,
    again_place,
    check_call,
    check_role,
    check_text,
    choose_behind,
    command,
    continuable,
    continued_form,
    continued_place,
    find_entry,
    find_key,
    next_command,
    options_for,
    raise_refusal,
    run_turn,
    say_calls,
    turn_record,
)
from antiphon.cli.terminal import AnswerScreen
from antiphon.cli.views import words_of
from replica.conversation import (
    Conversation,
    Place,
    awaited,
    left_out,
    place_at,
    refusal_of,
    says_nothing,
    with_conflict,
)
from replica.ids import EntryId, PublicKey, short
from replica.io import Replica, answers, error_of, petnames, turns
from replica.log import Conflict, ToolCall, Tools
from replica.log import Text as TextPart
from replica.refusals import ArgumentInvalid

_PIPED_MAX = TEXT_BYTES_MAX + 4096
"""Characters that are read of what is piped in; newlines at its end are no part of the text."""
REFUSED_STEP = (
    "`antiphon send` without TEXT asks once more, with other options; `antiphon fork --at ENTRY`"
    " goes further back; /undo in `antiphon chat` takes the message back."
)


def conflict_option(forking: str) -> Any:
    """Return the option of a way beside an awaited answer, with the cases that fork without it."""
    return typer.Option(
        metavar="queue|fork",
        help="If the branch has an awaited answer: queue behind it, or fork."
        f" Default: queue; fork {forking}.",
    )


ConflictOption = Annotated[str | None, conflict_option("with --at or without TEXT")]


MessageArgument = Annotated[
    str | None, typer.Argument(metavar="TEXT", help="The message; without, or -, what is piped in.")
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", "-c", metavar="ID", help="Conversation; default: the last used."),
]
AtOption = Annotated[
    str | None,
    typer.Option(metavar="ENTRY", help="Seal or entry to follow; starts a branch there."),
]
HostOption = Annotated[str | None, typer.Option(metavar="KEY", help="Key of the host to ask.")]
RequestOption = Annotated[
    bool, typer.Option("--request/--no-request", help="Ask the model to answer.")
]
WaitOption = Annotated[
    bool | None,
    typer.Option("--wait/--no-wait", help="Wait for the answer; default: if online."),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0.1, help="Give up after this time without progress."
    ),
]
WithinOption = Annotated[
    float | None,
    typer.Option(
        "--within",
        metavar="SECONDS",
        min=1.0,
        help="Time in which the answer must begin; after that, the host refuses it.",
    ),
]
TemperatureOption = Annotated[
    float | None, typer.Option(metavar="X", min=0.0, help="Sampling, for this request only.")
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Profile of the host to ask: its name, NAME@NUMERICS or digest."
    ),
]
ContinueOption = Annotated[
    bool,
    typer.Option(
        "--continue", help="Continue the last answer, which was cut off, in the same format."
    ),
]
MaxTokensOption = Annotated[int | None, typer.Option(metavar="N", min=1, help="Output tokens.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "send", rich_help_panel="Talk")(send)


async def send(
    session: Session,
    text: MessageArgument = None,
    *,
    to: ToOption = None,
    at: AtOption = None,
    host: HostOption = None,
    request: RequestOption = True,
    wait: WaitOption = None,
    timeout_s: TimeoutOption = 300.0,
    conflict: ConflictOption = None,
    within_s: WithinOption = None,
    temperature: TemperatureOption = None,
    top_p: Annotated[float | None, typer.Option(metavar="X", min=0.0, max=1.0)] = None,
    top_k: Annotated[int | None, typer.Option(metavar="N", min=0)] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", min=1)] = None,
    max_tokens: MaxTokensOption = None,
    json_schema: SchemaOption = None,
    regex: RegexOption = None,
    lark: LarkOption = None,
    tools: ToolsOption = None,
    tool_choice: ChoiceOption = None,
    result_of: ResultOption = None,
    profile: ProfileOption = None,
    go_on: ContinueOption = False,
) -> int:
    """Send one message and print the answer.

    Without TEXT and without anything piped in, ask for another answer to the last
    question of the branch, or at --at.
    Sampling options default to the conversation's, else to those that the
    host recommends for the profile.
    """
    choice, tool_name = choice_of(tool_choice)
    changes = {
        "temperature": temperature, "top_p": top_p, "top_k": top_k, "seed": seed,
        "output_tokens_max": max_tokens, "answer_within_s": within_s, "profile": profile,
        "response_format": form_of(json_schema, regex, lark), "tool_choice": choice,
        "tool_name": tool_name,
    }  # fmt: skip
    keeps_form = tool_choice is None and changes["response_format"] is None
    message, way = None if go_on else _message_of(text), parse_conflict(conflict)
    if go_on and (text is not None or at is not None or not request):
        raise ArgumentInvalid("--continue stands alone: without TEXT, --at and --no-request")
    if not request and message is None:
        raise ArgumentInvalid("nothing to send: give TEXT, or leave out --no-request")
    if not request and (tools is not None or result_of is not None):
        raise ArgumentInvalid("tools and results go with a request: leave out --no-request")
    if result_of is not None and message is None:
        raise ArgumentInvalid("--result needs TEXT, the result of the call")
    if way is None and message is None and not go_on:
        way = Conflict.FORK  # another answer, beside an existing one
    given = Given(
        to, at, host, way, wait, timeout_s, changes, tools_of(tools), result_of,
        is_request=request, go_on=go_on, keeps_form=keeps_form,
    )  # fmt: skip
    async with session.replica() as replica:
        return await _send(session, replica, message, given)


@dataclass(frozen=True, slots=True)
class Given:
    """The options of one `send`."""

    to: str | None
    at: str | None
    host: str | None
    conflict: Conflict | None
    wait: bool | None
    timeout_s: float
    changes: dict[str, Any]
    tools: Tools | None
    result_of: str | None
    is_request: bool
    go_on: bool
    keeps_form: bool
    """Whether no form or choice of tools is stated: an answer that goes on keeps its own."""


async def _send(session: Session, replica: Replica, message: str | None, given: Given) -> int:
    chosen = await session.choose(replica.store, given.to)
    held = await replica.load(chosen)
    online = await session.sync(replica, chosen)
    choices = await session.choices(replica.store, chosen)
    check_role(replica, held)
    place = choices.place(held)
    if given.at is not None:
        place = place_at(held, find_entry(held, given.at))
        if message is None:
            place = with_conflict(held, place, Conflict.FORK)
    changes = given.changes
    if given.go_on:
        place = continued_place(held, place)
        changes = changes | (continued_form(held, place) if given.keeps_form else {})
    elif message is None and given.at is None and not choices.at:
        place = again_place(held, place)
    if given.conflict is not None:
        place = with_conflict(held, place, given.conflict)
    await session.use(replica.store, chosen)
    if given.at is None:
        if not choices.at and choices.branch:
            last = EntryId(bytes.fromhex(choices.branch))
            names = await session.names(replica.store, held)
            say_branches(session, held, last, place, replica.public, names)
        if given.result_of is None:
            say_calls(session, replica, held, place)
            say_awaited(session, replica, held, place)
    if given.result_of is not None:
        check_call(session, replica, held, place, given.result_of)
    if not given.is_request:
        return await _say(session, replica, held, message or "", place, forks=given.at is not None)
    host = None
    if given.host is not None:
        host = find_key(given.host, held.log.membership.roles, await petnames.names(replica.store))
    options = options_for(replica, held, host=host, changes=changes)
    is_away = online and all(known.key != options.host for known in replica.hub.hosts)
    is_waited_for = given.wait if given.wait is not None else online and not is_away
    wait_s = given.timeout_s if is_waited_for else None
    extras = {"tools": given.tools, "result_of": given.result_of, "choices": choices}
    return await _ask(session, replica, held, message, place, options, wait_s, extras)


def say_awaited(session: Session, replica: Replica, held: Conversation, place: Place) -> None:
    """Print a note if a message at `place` waits for an answer, or forks and leaves one out."""
    forks = place.conflict is Conflict.FORK
    waiting = left_out(held, place) if forks else awaited(held, place)
    if not waiting:
        return
    rest = "this makes a branch without it" if forks else "this goes after it"
    session.out.note(f"note: an answer on this branch is still awaited; {rest}")
    bodies = filter(None, (held.order.request(i) for i in waiting))
    linked = {info.key for info in replica.hub.hosts}
    away = {short(body.host) for body in bodies if body.host not in linked}
    if replica.hub.is_linked and away and not forks:
        step = f"{next_command(session.settings, 'cancel')} ends the wait"
        if not all(may_cancel(held, replica.public, i) for i in waiting):
            beside = next_command(session.settings, "send", "--conflict", "fork", "TEXT")
            step = f"who asked, or an owner, can cancel it; {beside} goes on beside it"
        session.out.note(f"      its host {', '.join(sorted(away))} is not linked; {step}")


def _message_of(text: str | None) -> str | None:
    """Return the text to send; None to request only an answer. Raises ArgumentInvalid."""
    is_piped = text == "-" or (text is None and not sys.stdin.isatty())
    message = _piped() if is_piped else text
    if message is None or (text is None and not message):
        return None
    message = message.rstrip("\n") if is_piped else message
    if says_nothing((TextPart(message),)):
        raise ArgumentInvalid("the message is empty; to ask again, leave TEXT out")
    return check_text(message)


def _piped() -> str:
    """Read what is piped in, and little more than can be sent. Raises MessageTooLong."""
    text = sys.stdin.read(_PIPED_MAX)
    if len(text) == _PIPED_MAX:
        raise MessageTooLong(f"more than {TEXT_BYTES_MAX:,} bytes are piped in")
    return text


async def _say(
    session: Session, replica: Replica, held: Conversation, text: str, place: Place, *, forks: bool
) -> int:
    entry = await turns.say(replica, held.id, (TextPart(text),), place)
    choices = await session.choices(replica.store, held.id)
    if choices.at or forks:  # no request is there that keeps it apart from the branch
        choices.at, choices.is_instead = entry.id.hex(), False
        await choose_behind(session, replica, held.id, choices, "fork", "--at", short(entry.id))
    synced = await _flush(session, replica, held)
    if session.out.as_json:
        session.out.emit(
            {
                "conversation": held.id.hex(),
                "message": entry.id.hex(),
                "synchronized": synced,
                "unsynced": replica.hub.unsynced(held.id),
            }
        )
    else:
        session.out.show(entry.id.hex())
    return 0


async def _ask(
    session: Session,
    replica: Replica,
    held: Conversation,
    text: str | None,
    place: Place,
    options: turns.RequestOptions,
    wait_s: float | None,
    extras: dict[str, Any],
) -> int:
    events = run_turn(session, replica, held, text, place, options, silence_max_s=wait_s, **extras)
    async with contextlib.aclosing(events):  # type: ignore[type-var]  # an async generator
        shown = await _show(session, replica, held, options.host, events, waits=wait_s is not None)
    asked, finished = shown.asked, shown.finished
    synced = await _flush(session, replica, held)
    record = turn_record(held, asked, finished)
    record["synchronized"] = synced
    record["unsynced"] = replica.hub.unsynced(held.id)
    if finished is not None:
        raise_refusal(finished.generation, REFUSED_STEP)
        calls = [part for part in finished.generation.parts if isinstance(part, ToolCall)]
        for call in calls:
            session.out.show(words_of((call,)))
        place = (await session.choices(replica.store, held.id)).place(held)
        step = ""
        if calls:
            result = next_command(session.settings, "send", "TEXT", "--result", calls[0].call_id)
            step = f"{result} gives its result"
        elif continuable(held, place) == finished.id:
            step = f"{next_command(session.settings, 'send', '--continue')} goes on"
        shown.screen.cost(finished, step)
    elif not session.out.as_json and asked is not None:
        session.out.show(asked.request.hex())
    if session.out.as_json:
        session.out.emit(record)
    if finished is None and asked is not None:
        _check_taken(session, replica, held, asked.request, options.host)
    return 0


def _check_taken(
    session: Session, replica: Replica, held: Conversation, request: EntryId, host: PublicKey
) -> None:
    """Print a note if the host of a request that nobody waits for is away.

    Raises the refusal of the hub, behind which the request is answered by nobody.
    """
    fault = replica.hub.denial(held.id, request)
    if fault is not None:
        raise refusal_of(held, replica.public, error_of(fault))
    if replica.hub.is_linked and all(known.key != host for known in replica.hub.hosts):
        session.out.note(f"the host {short(host)} is not linked; it will answer when it is back")


@dataclass(slots=True)
class _Shown:
    """The events of a turn that were shown on `screen`."""

    screen: AnswerScreen
    asked: answers.Asked | None = None
    finished: answers.Finished | None = None


async def _show(
    session: Session,
    replica: Replica,
    held: Conversation,
    host: PublicKey,
    events: AsyncIterable[answers.TurnEvent],
    *,
    waits: bool,
) -> _Shown:
    """Show the events of a turn up to its end, or without waiting up to its request."""
    shown = _Shown(AnswerScreen(session.out))
    presence = HostPresence(replica, held.id)
    session.beside = shown.screen.aside
    reporting = asyncio.create_task(presence.report(host, shown.screen.delay))
    try:
        async for event in events:
            presence.note_news()
            if isinstance(event, answers.Asked):
                shown.asked = event
                if not waits:
                    break
            if isinstance(event, answers.Finished):
                shown.finished = event
            shown.screen.show(event)
            if event is shown.asked and not replica.hub.is_linked:
                shown.screen.show(answers.LinkLost())  # events tell of changes only
    except asyncio.CancelledError:
        shown.screen.end()
        if shown.asked is not None:
            step = next_command(session.settings, "log", "-f")
            session.out.note(f"left; the answer goes on into the log: {step}")
        raise
    finally:
        session.beside = contextlib.nullcontext
        reporting.cancel()
        await presence.stop()
        shown.screen.end()
    return shown


async def _flush(session: Session, replica: Replica, held: Conversation) -> bool:
    """Wait until the hub holds the new entries; print a note if it is away."""
    timeout_s = session.settings.sync_timeout_s
    if replica.hub.is_linked and await replica.wait_synced(held.id, timeout_s):
        return True
    await session.say_offline(replica, held)
    return False


def parse_conflict(text: str | None) -> Conflict | None:
    """Parse queue or fork; None keeps the default of the place. Raises ArgumentInvalid."""
    if text is None:
        return None
    if text.upper() not in Conflict.__members__:
        raise ArgumentInvalid(f"--conflict is queue or fork, not '{text}'")
    return Conflict[text.upper()]
