"""`antiphon log`: the entries as a list, a graph or JSON, optionally followed live."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Annotated

import typer
from rich.text import Text

from antiphon.cli.command import ConversationArgument, command
from antiphon.cli.follow import follow
from antiphon.cli.graph import draw
from antiphon.cli.rows import Row, counted, entries_at, entry_record, is_open, row_of, wrapped
from antiphon.cli.session import Session, check_readable, find_entry, load_from
from replica.conversation import Conversation, EntryStore
from replica.ids import ConversationId, EntryId, PublicKey, short
from replica.io import keys
from replica.log import Entry, Kind, reach
from replica.refusals import StoreLocked

NARROW_CELLS = 60
WHO_COLORS = {"you": "cyan", "model": "green", "system": "magenta", "tool": "magenta"}
_TALK = frozenset({Kind.MESSAGE, Kind.TOOLS, Kind.GENERATION})


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "log", rich_help_panel="Look")
    async def log(
        session: Session,
        conversation: ConversationArgument = None,
        *,
        graph: Annotated[
            bool, typer.Option("--graph", help="Draw seals, branches and tail.")
        ] = False,
        go_on: Annotated[
            bool, typer.Option("--follow", "-f", help="Continue with new entries as they arrive.")
        ] = False,
        after: Annotated[
            list[str] | None,
            typer.Option(help="Skip this entry and its ancestors: the cursor of -f."),
        ] = None,
        everything: Annotated[
            bool, typer.Option("--all", help="All branches and kinds, in (lamport, id) order.")
        ] = False,
    ) -> None:
        """Show the branch that the next message continues, oldest entry first.

        With -f, the id of the last line is a cursor: --after ID continues there
        without a gap. Entries written elsewhere meanwhile may be shown twice.
        """
        async with _viewing(session, conversation) as (store, held):
            shown = await _choose_entries(session, store, held, everything=everything)
            seen = _behind(held, [find_entry(held, prefix) for prefix in after or []])
            if graph:
                _print_graph(session, held)
            else:
                _print(session, held, [e for e in shown if e.id not in seen])
        if go_on:
            # Without the lock of the store, so that a chat can run at the same time.
            await _follow(session, held.id, seen | held.log.entries.keys())


@asynccontextmanager
async def _viewing(
    session: Session, prefix: str | None
) -> AsyncIterator[tuple[EntryStore, Conversation]]:
    """Open the replica and sync; if another process holds the store, only read it."""
    async with session.reading() as store:
        chosen = await session.choose(store, prefix)
    try:
        async with session.replica() as replica:
            await replica.load(chosen)
            if not await session.sync(replica, chosen):
                held = check_readable(await replica.load(chosen))
                await session.say_offline(replica, held)
            yield replica.store, check_readable(await replica.load(chosen))
    except StoreLocked:
        async with session.reading() as store:
            yield store, check_readable(await load_from(store, chosen))


async def _choose_entries(
    session: Session, store: EntryStore, held: Conversation, *, everything: bool
) -> list[Entry]:
    if everything or session.out.as_json:
        return sorted(held.log.entries.values(), key=lambda e: e.order_key)
    choices = await session.choices(store, held.id)
    return entries_at(held, choices.place(held))


def _behind(held: Conversation, cursor: list[EntryId]) -> set[EntryId]:
    """Return the cursor's entries with all their ancestors."""
    return reach(cursor, held.log.named)


async def _follow(session: Session, conversation: ConversationId, seen: set[EntryId]) -> None:
    """Print new entries as they arrive, until interrupted."""
    session.out.note(Text(f"following {short(conversation)}; Ctrl-C ends", style="dim"))
    async with session.reading() as store:
        held = await load_from(store, conversation)
        _print(session, held, [e for e in held.log.entries.values() if e.id not in seen])
        async for entry in follow(session, store, held):
            _print(session, held, [entry])


def _print(session: Session, held: Conversation, entries: Iterable[Entry]) -> None:
    own = own_key(session)
    for entry in entries:
        if session.out.as_json:
            session.out.emit(entry_record(held, entry))
        elif entry.header.kind in _TALK or is_open(held, entry):
            print_row(session, row_of(held, entry, own))


def print_row(session: Session, row: Row) -> None:
    """Write one entry: id, who, text with a hanging indent, how it ended."""
    out = session.out
    color = WHO_COLORS.get(row.who, "yellow")
    head = Text.assemble((row.id, "dim"), "  ", (f"{row.who:<8}", color))
    # A narrow terminal has no space beside the head; the text goes below it.
    is_narrow = out.data.is_terminal and out.data.width < NARROW_CELLS
    indent = " " * (4 if is_narrow else 20)
    width = out.data.width - len(indent) if out.data.is_terminal else 0
    first, *rest = wrapped(row.text, width)
    if is_narrow:
        out.show(head)
        out.show(indent + first)
    else:
        out.show(head + "  " + first)
    for line in rest:
        out.show(indent + line)
    for line in wrapped(row.note, width, " · ") if row.note else []:
        out.show(Text(indent + line, style="dim"))


def _print_graph(session: Session, held: Conversation) -> None:
    out = session.out
    own = own_key(session)
    if out.as_json:
        for node in held.order.nodes.values():
            out.emit(
                {
                    "seal": node.id.hex(),
                    "prev_seal": node.parent.id.hex() if node.parent is not None else None,
                    "entries": [i.hex() for i in node.seal.entries],
                    "generation": node.generation.hex() if node.generation is not None else None,
                    "is_tip": not node.children,
                }
            )
        return
    lines = list(draw(held, own))
    widest = max(len(line.drawing) for line in lines)
    for line in lines:
        if line.row is None:
            out.show(Text(line.drawing, style="red"))
            continue
        text = Text.assemble((f"{line.drawing:<{widest}}", "red"), "  ")
        text.append(line.row.id, style="yellow" if line.is_seal else "dim")
        text.append(f"  {line.row.who:<8}", style=WHO_COLORS.get(line.row.who, "yellow"))
        text.append("  " + " ".join(line.row.text.split()))
        if line.row.note:
            text.append("  " + line.row.note.split(" · ")[0], style="dim")
        if out.data.is_terminal:
            text.truncate(out.data.width - 1, overflow="ellipsis")
        out.show(text)
    out.note(Text(counted(len(held.order.tips()), "branch", "branches"), style="dim"))


def own_key(session: Session) -> PublicKey | None:
    """Return this replica's public key, if it has one."""
    return keys.public(session.key()) if session.settings.key_path.is_file() else None
