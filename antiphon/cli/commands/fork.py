"""`antiphon fork`: choose the place of the next message."""

from typing import Annotated, Any

import typer
from rich.text import Text

from antiphon.cli.common import (
    Choices,
    ConversationArgument,
    Session,
    check_readable,
    command,
    find_entry,
    load_from,
    next_command,
)
from antiphon.cli.views import Names, followed, followed_next, row_of
from replica.conversation import Conversation, Place, place_at


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "fork", rich_help_panel="Talk")(fork)


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
    """Choose the entry that the next message follows; later entries stay as a branch.

    The choice is local to this replica; the branch appears in the log with the
    next message. `send --at` does both in one step.
    """
    async with session.replica(linked=False) as replica:
        chosen = await session.choose(replica.store, conversation)
        held = check_readable(await load_from(replica.store, chosen))
        choices = await session.choices(replica.store, chosen)
        choices.at = choices.branch = ""
        place = choices.place(held)
        if not newest:
            end = place.basis or followed(held, place).id
            entry_id = end if at is None else find_entry(held, at)
            place = place_at(held, entry_id)
            choices.at, choices.is_instead = entry_id.hex(), False
        await session.choose_next(replica.store, chosen, choices)
        await session.use(replica.store, chosen)
        _report_place(session, held, place, choices, await session.names(replica.store, held))


def place_record(held: Conversation, place: Place, at: str) -> dict[str, Any]:
    """Return the place of the next message, and the hex id of a chosen entry, as a JSON object."""
    return {
        "conversation": held.id.hex(),
        "at": at or None,
        "parents": [p.hex() for p in place.parents],
        "basis": place.basis.hex() if place.basis is not None else None,
    }


def _report_place(
    session: Session, held: Conversation, place: Place, choices: Choices, names: Names
) -> None:
    if session.out.as_json:
        session.out.emit(place_record(held, place, choices.at))
        return
    row = row_of(held, followed(held, place), names)
    session.out.show(followed_next(row))
    send, chat = (next_command(session.settings, *words) for words in (("send", "TEXT"), ("chat",)))
    session.out.note(Text(f"next: {send}, or {chat}", style="dim"))
