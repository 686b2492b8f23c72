"""`antiphon send`: one message, one answer; and `antiphon fork`: where the next one goes."""

import asyncio
import contextlib
import sys
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer
from rich.text import Text

from antiphon.cli.command import ConversationArgument, command
from antiphon.cli.log import own_key
from antiphon.cli.new import parse_key
from antiphon.cli.rows import cut, row_of
from antiphon.cli.screen import AnswerScreen
from antiphon.cli.session import Choices, Session, check_readable, find_entry, load_from
from antiphon.cli.turn import check_role, check_text, take_turn, turn_record, wish_for
from replica.conversation import Conversation, Place, awaited, place_at
from replica.ids import PublicKey, short
from replica.io import Replica, turns
from replica.log import Conflict
from replica.log import Text as TextPart
from replica.refusals import ArgumentInvalid

PREVIEW_CELLS = 36
ConflictOption = Annotated[
    str | None,
    typer.Option(
        metavar="queue|fork",
        help="Where the branch goes on meanwhile: queue behind its answer, or fork."
        " As a rule queue; --at and asking again fork.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""

    @command(app, "send", rich_help_panel="Talk")
    async def send(
        session: Session,
        text: Annotated[
            str | None, typer.Argument(metavar="TEXT", help="The message; - reads stdin.")
        ] = None,
        *,
        to: Annotated[
            str | None,
            typer.Option("--to", "-c", metavar="ID", help="Conversation; else the last."),
        ] = None,
        at: Annotated[
            str | None,
            typer.Option(metavar="ENTRY", help="Follow this seal or entry: makes a branch there."),
        ] = None,
        host: Annotated[
            str | None, typer.Option(metavar="KEY", help="Key of the host to ask.")
        ] = None,
        request: Annotated[
            bool, typer.Option("--request/--no-request", help="Ask the model to answer.")
        ] = True,
        wait: Annotated[
            bool | None,
            typer.Option("--wait/--no-wait", help="Wait for the answer; as a rule, if online."),
        ] = None,
        timeout_s: Annotated[
            float,
            typer.Option(
                "--timeout", metavar="SECONDS", min=0.1, help="Give up after so long without news."
            ),
        ] = 300.0,
        conflict: ConflictOption = None,
        within_s: Annotated[
            float | None,
            typer.Option(
                "--within", metavar="SECONDS", min=1.0, help="The host is not to begin later."
            ),
        ] = None,
        temperature: Annotated[
            float | None, typer.Option(metavar="X", min=0.0, help="Here and below: this once.")
        ] = None,
        top_p: Annotated[float | None, typer.Option(metavar="X", min=0.0, max=1.0)] = None,
        top_k: Annotated[int | None, typer.Option(metavar="N", min=0)] = None,
        seed: Annotated[int | None, typer.Option(metavar="N", min=1)] = None,
        max_tokens: Annotated[
            int | None, typer.Option(metavar="N", min=1, help="Output tokens.")
        ] = None,
    ) -> int:
        """Send one message and print the answer.

        Without TEXT it asks again: a new answer to what --at names, or to the
        end of the branch. Sampling is the conversation's, unless given.
        """
        changes = {
            "temperature": temperature, "top_p": top_p, "top_k": top_k, "seed": seed,
            "output_tokens_max": max_tokens, "answer_within_s": within_s,
        }  # fmt: skip
        message, way = _message_of(text), parse_conflict(conflict)
        if not request and message is None:
            raise ArgumentInvalid("nothing to send: give TEXT, or leave out --no-request")
        if way is None and message is None:
            way = Conflict.FORK  # another answer, beside the one there may be
        host_key = parse_key(host) if host else None
        given = Given(to, at, host_key, way, wait, timeout_s, changes, is_request=request)
        async with session.replica() as client:
            return await _send(session, client, message, given)

    @command(app, "fork", rich_help_panel="Talk")
    async def fork(
        session: Session,
        conversation: ConversationArgument = None,
        *,
        at: Annotated[
            str | None,
            typer.Option(metavar="ENTRY", help="Seal or entry the next message follows."),
        ] = None,
        newest: Annotated[
            bool, typer.Option("--newest", help="Go back to the branch with the latest activity.")
        ] = False,
    ) -> None:
        """Choose where the next message goes; what follows there already stays a branch.

        The choice is this replica's own and is not sent; the branch appears in
        the log with the next message. `send --at` does both in one step.
        """
        async with session.replica(linked=False) as client:
            chosen = await session.choose(client.store, conversation)
            held = check_readable(await load_from(client.store, chosen))
            choices = await session.choices(client.store, chosen)
            choices.at = choices.branch = ""
            place = choices.place(held)
            if not newest:
                entry_id = find_entry(held, at) if at else place.basis or place.parents[0]
                place = place_at(held, entry_id)
                choices.at = entry_id.hex()
            await session.choose_next(client.store, chosen, choices)
            await session.use(client.store, chosen)
            _report_place(session, held, place, choices)


@dataclass(frozen=True, slots=True)
class Given:
    """The options of one `send`."""

    to: str | None
    at: str | None
    host: PublicKey | None
    conflict: Conflict | None
    wait: bool | None
    timeout_s: float
    changes: dict[str, Any]
    is_request: bool


async def _send(session: Session, client: Replica, message: str | None, given: Given) -> int:
    chosen = await session.choose(client.store, given.to)
    held = await client.load(chosen)
    online = await session.meet(client, chosen)
    choices = await session.choices(client.store, chosen)
    check_role(client, held)
    place = place_at(held, find_entry(held, given.at)) if given.at else choices.place(held)
    if given.conflict is not None:
        place = replace(place, conflict=given.conflict)
    await session.use(client.store, chosen)
    if given.at is None:
        say_awaited(session, client, held, place)
    if not given.is_request:
        return await _say(session, client, held, message or "", place)
    wish = wish_for(client, held, choices, host=given.host, changes=given.changes)
    is_waited_for = _should_wait(session, client, wish, given.wait, online=online)
    wait_s = given.timeout_s if is_waited_for else None
    return await _ask(session, client, held, message, place, wish, wait_s)


def _report_place(session: Session, held: Conversation, place: Place, choices: Choices) -> None:
    if session.out.as_json:
        session.out.emit(
            {
                "conversation": held.id.hex(),
                "at": choices.at or None,
                "parents": [p.hex() for p in place.parents],
                "basis": place.basis.hex() if place.basis is not None else None,
            }
        )
        return
    row = row_of(held, held.log.entries[place.parents[0]], own_key(session))
    words = " ".join(row.text.split())
    session.out.show(f"the next message follows {row.id}  {row.who}: {cut(words, PREVIEW_CELLS)}")
    session.out.note(Text("next: antiphon send TEXT, or antiphon chat", style="dim"))


def say_awaited(session: Session, client: Replica, held: Conversation, place: Place) -> None:
    """Say which answer a message at `place` waits for, and how to wait no longer."""
    waiting = awaited(held, place)
    if not waiting:
        return
    forks = place.conflict is Conflict.FORK
    rest = "this makes a branch without it" if forks else "this goes after it"
    session.out.note(f"note: an answer on this branch is still awaited; {rest}")
    bodies = filter(None, (held.order.request(i) for i in waiting))
    linked = {info.key for info in client.hosts} if client.is_linked else set()
    away = {short(body.host) for body in bodies if body.host not in linked}
    if client.is_linked and away:
        hosts = ", ".join(sorted(away))
        session.out.note(f"      its host {hosts} is not linked; antiphon cancel waits no longer")


def _message_of(text: str | None) -> str | None:
    """Return what to send; None where only an answer is asked for. Raises ArgumentInvalid."""
    if text is None:
        return None
    message = sys.stdin.read().rstrip("\n") if text == "-" else text
    if not message.strip():
        raise ArgumentInvalid("the message is empty; to ask again, leave TEXT out")
    return check_text(message)


def _should_wait(
    session: Session,
    client: Replica,
    wish: turns.RequestOptions,
    wait: bool | None,
    *,
    online: bool,
) -> bool:
    """Wait where asked to; as a rule where hub and host are both there."""
    if wait is not None:
        return wait
    if online and all(known.key != wish.host for known in client.hosts):
        session.out.note(
            f"the host {short(wish.host)} is not linked; it will answer when it is back"
        )
        return False
    return online


async def _say(
    session: Session, client: Replica, held: Conversation, text: str, place: Place
) -> int:
    entry = await turns.say(client, held.id, (TextPart(text),), place)
    choices = await session.choices(client.store, held.id)
    if choices.at:
        choices.at = entry.id.hex()
        await session.choose_next(client.store, held.id, choices)
    synced = await _flush(session, client, held)
    if session.out.as_json:
        session.out.emit(
            {
                "conversation": held.id.hex(),
                "message": entry.id.hex(),
                "synchronized": synced,
                "unsynced": client.unsynced(held.id),
            }
        )
    else:
        session.out.show(entry.id.hex())
    return 0


async def _ask(
    session: Session,
    client: Replica,
    held: Conversation,
    text: str | None,
    place: Place,
    wish: turns.RequestOptions,
    wait_s: float | None,
) -> int:
    screen = AnswerScreen(session.out)
    asked: turns.Asked | None = None
    finished: turns.Finished | None = None
    events = take_turn(session, client, held, text, place, wish, silence_max_s=wait_s)
    async with contextlib.aclosing(events):  # type: ignore[type-var]  # an async generator
        try:
            async for event in events:
                if isinstance(event, turns.Asked):
                    asked = event
                    if wait_s is None:
                        break
                if isinstance(event, turns.Finished):
                    finished = event
                screen.show(event)
        except asyncio.CancelledError:
            screen.end()
            if asked is not None:
                session.out.note("left; the answer goes on into the log: antiphon log -f")
            raise
        finally:
            screen.end()
    synced = await _flush(session, client, held)
    record = turn_record(held, asked, finished)
    record["synchronized"] = synced
    record["unsynced"] = client.unsynced(held.id)
    if finished is not None:
        turns.raise_if_refused(finished.generation)
        screen.cost(finished)
    elif not session.out.as_json and asked is not None:
        session.out.show(asked.request.hex())
    if session.out.as_json:
        session.out.emit(record)
    return 0


async def _flush(session: Session, client: Replica, held: Conversation) -> bool:
    """Let the hub have what was written; say so where it is away."""
    if client.is_linked and await client.wait_synced(held.id, session.settings.sync_timeout_s):
        return True
    await session.say_offline(client, held)
    return False


def parse_conflict(text: str | None) -> Conflict | None:
    """Read queue or fork; None leaves it to the place. Raises ArgumentInvalid."""
    if text is None:
        return None
    if text.upper() not in Conflict.__members__:
        raise ArgumentInvalid(f"--conflict is queue or fork, not '{text}'")
    return Conflict[text.upper()]
