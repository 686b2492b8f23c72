"""`antiphon log`: the entries as a list, a graph or JSON, optionally followed live."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from typing import Annotated

import typer
from rich.text import Text

from antiphon.cli.commands.follow import follow
from antiphon.cli.common import (
    STILL_READ,
    ConversationArgument,
    Session,
    UsageInvalid,
    check_readable,
    command,
    find_entry,
    load_from,
    next_command,
    say_forks,
)
from antiphon.cli.views import (
    Names,
    Printed,
    Row,
    brief,
    counted,
    detail_of,
    draw,
    entries_at,
    entry_record,
    followed,
    followed_next,
    is_listed,
    lines_of,
    own_message,
    row_of,
    who_cells,
    wrapped,
)
from replica.conversation import (
    Conversation,
    EntryStore,
    KeyRemoved,
    Place,
    waiting_beside,
)
from replica.ids import ConversationId, EntryId, short
from replica.io import KeyFileGone
from replica.log import Entry, Kind, reach
from replica.order import branch_ends, is_withdrawn
from replica.refusals import ConversationDeleted

NARROW_CELLS = 60


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
            typer.Option(
                metavar="ENTRY", help="Skip this entry and its ancestors: the cursor of -f."
            ),
        ] = None,
        everything: Annotated[
            bool, typer.Option("--all", help="All branches, in (lamport, id) order.")
        ] = False,
    ) -> None:
        """Show the branch that the next message continues, oldest entry first.

        With -f, the id of the last line is a cursor: --after ID continues there
        without a gap. Entries written elsewhere meanwhile may be shown twice. Who waits
        with a code is admitted before it follows, and not meanwhile; `chat` does both.

        As text it has messages, answers and open requests. With --json it has all branches and
        kinds, such as seals and grants.
        """
        if graph and (everything or after):
            raise UsageInvalid("--graph draws all branches whole, without --all and --after")
        async with _viewing(session, conversation) as (store, held):
            shown = await choose_entries(session, store, held, everything=everything)
            seen = _behind(held, [find_entry(held, prefix) for prefix in after or []])
            names = await session.names(store, held)
            if graph:
                place = (await session.choices(store, held.id)).place(held)
                _print_graph(session, held, names, place)
            else:
                print_entries(session, held, [e for e in shown if e.id not in seen], names)
                if not everything:
                    _say_branches(session, held)
            say_forks(session, held)
            told = {i for i in held.log.entries if is_withdrawn(held.order, i)}
        if go_on:
            # Without the lock of the store, so that a chat can run at the same time.
            await _follow(session, held.id, seen | held.log.entries.keys(), told, names)


@asynccontextmanager
async def _viewing(
    session: Session, prefix: str | None
) -> AsyncIterator[tuple[EntryStore, Conversation]]:
    """Open the replica and sync; if another process holds the store, only read it."""
    async with session.reading() as store:
        chosen = await session.choose(store, prefix)
    async with AsyncExitStack() as stack:
        try:
            replica = await stack.enter_async_context(session.replica())
        except STILL_READ as error:
            if isinstance(error, KeyFileGone):  # the others pass, or the log says them itself
                session.out.note(f"{brief(error)}. {error.next_step}")
            store = await stack.enter_async_context(session.reading())
            yield store, check_readable(await load_from(store, chosen))
            return
        await replica.load(chosen)
        try:
            if not await session.sync(replica, chosen):
                held = check_readable(await replica.load(chosen))
                await session.say_offline(replica, held)
        except (KeyRemoved, ConversationDeleted) as refusal:
            session.out.note(f"showing local entries only: {detail_of(refusal)}")
        yield replica.store, check_readable(await replica.load(chosen))


async def choose_entries(
    session: Session, store: EntryStore, held: Conversation, *, everything: bool
) -> list[Entry]:
    """Return the entries that `log` shows: of all branches, or of the one that is continued."""
    if everything or session.out.as_json:
        return all_entries(held)
    place = (await session.choices(store, held.id)).place(held)
    beside = [held.log.entries[i] for i in waiting_beside(held, place)]
    asked = ((own_message(held, request), request) for request in beside)
    shown = [*entries_at(held, place), *filter(None, chain.from_iterable(asked))]
    return list({entry.id: entry for entry in shown}.values())


def all_entries(held: Conversation) -> list[Entry]:
    """Return the entries of all branches and kinds, in (lamport, id) order."""
    return sorted(held.log.entries.values(), key=lambda e: e.order_key)


def _behind(held: Conversation, cursor: list[EntryId]) -> set[EntryId]:
    """Return the cursor's entries with all their ancestors."""
    return reach(cursor, held.log.named)


async def _follow(
    session: Session,
    conversation: ConversationId,
    seen: set[EntryId],
    told: set[EntryId],
    names: Names,
) -> None:
    """Print new entries as they arrive, until interrupted.

    `told` are those of `seen` that were known to be withdrawn.
    """
    session.out.note(Text(f"following {short(conversation)}; Ctrl-C ends", style="dim"))
    async with session.reading() as store:
        held = await load_from(store, conversation)
        printed = Printed(held)
        print_entries(
            session, held, [e for e in held.log.entries.values() if e.id not in seen], names
        )
        for entry_id in held.log.entries.keys() - told:
            if entry_id in seen or not is_withdrawn(held.order, entry_id):
                printed.add(entry_id)
        if not session.out.as_json:
            print_entries(session, held, printed.withdrawn(), names)
        async for entry in follow(session, store, held):
            print_entries(session, held, [entry], names)
            if entry.header.kind == Kind.CANCEL and not session.out.as_json:  # again, with the note
                print_entries(session, held, printed.withdrawn(), names)
            if not is_withdrawn(held.order, entry.id):
                printed.add(entry.id)


def print_entries(
    session: Session, held: Conversation, entries: Iterable[Entry], names: Names
) -> None:
    """Print entries as rows, those that people read; with --json all of them, as records."""
    for entry in entries:
        if session.out.as_json:
            session.out.emit(entry_record(held, entry))
        elif is_listed(held, entry):
            print_row(session, row_of(held, entry, names, is_verbose=session.out.is_verbose))


def print_row(session: Session, row: Row) -> None:
    """Write one entry: id, who, text with a hanging indent, how it ended."""
    out = session.out
    head = Text.assemble((row.id, "dim"), "  ", who_cells(row.who))
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


def _say_branches(session: Session, held: Conversation) -> None:
    others = len(branch_ends(held.order)) - 1
    if others > 0 and not session.out.as_json:
        words = counted(others, "other branch", "other branches")
        step = next_command(session.settings, "branches")
        session.out.note(Text(f"{words}; next: {step}", style="dim"))


def _print_graph(session: Session, held: Conversation, names: Names, place: Place) -> None:
    out = session.out
    if out.as_json:
        for node in held.order.nodes.values():
            out.emit(
                {
                    "seal": node.id.hex(),
                    "prev_seal": node.parent.id.hex() if node.parent is not None else None,
                    "entries": [i.hex() for i in node.seal.entries],
                    "generation": node.generation.hex() if node.generation is not None else None,
                    "is_tip": not held.order.children(node),
                }
            )
        return
    width = out.data.width - 1 if out.data.is_terminal else None
    for line in lines_of(list(draw(held, names)), width):
        out.show(line)
    out.note(Text(counted(len(branch_ends(held.order)), "branch", "branches"), style="dim"))
    row = row_of(held, followed(held, place), names)
    out.note(Text(followed_next(row), style="dim"))
