"""`antiphon pages`: where the keys and values of a conversation's context are."""

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from antiphon.cli.commands import pages_travel
from antiphon.cli.common import (
    ConversationArgument,
    Group,
    HostAddressOption,
    Session,
    check_readable,
    command,
    find_entry,
    host_to_ask,
    load_from,
)
from antiphon.cli.views import ID_DIGITS, NOBODY, Names, Output, plain_table, row_of, word_of
from replica.conversation import Conversation
from replica.ids import EntryId
from replica.io import ContextPages, HostCalls, PagedEntry
from replica.log import Message, Speaker

PLACES = (
    ("cached", "in memory", "green"),
    ("shared", "in memory, shared", "cyan"),
    ("stored", "on disk", "yellow"),
    ("absent", "to be computed", "dim"),
)
"""The places where tokens are, in the order of their positions."""


class PagesGroup(Group):
    """A group whose command `show` is meant where no command is named."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Insert `show` before an id; its name is no id, since ids are hex."""
        if not args or args[0] not in self.commands:
            args = ["show", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `show` where only options are given, or nothing is."""
        helps = ctx.help_option_names
        if not args or (args[0].startswith("-") and args[0] not in helps):
            args = ["show", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(cls=PagesGroup)
    app.add_typer(
        group, name="pages", help="Look at a context's keys and values.", rich_help_panel="Look"
    )

    pages_travel.add_to(group)

    @command(group, "show")
    async def show(
        session: Session,
        conversation: ConversationArgument = None,
        *,
        seal: Annotated[
            str | None, typer.Option(metavar="ENTRY", help="The branch that ends with this seal.")
        ] = None,
        host_address: HostAddressOption = None,
    ) -> None:
        """Show which tokens are in the host's memory, on its disk, or to be computed.

        Pages that only other conversations use are shown to the conversation's first owner.
        """
        async with session.reading() as store:
            chosen = await session.choose(store, conversation)
            held = check_readable(await load_from(store, chosen))
            names = await session.names(store, held)
        host = await host_to_ask(session, host_address, held.log.membership.hosts())
        at = find_entry(held, seal) if seal is not None else None
        async with HostCalls(host.address, session.key(), host.key) as calls:
            pages = await calls.pages(chosen, at)
        if session.out.as_json:
            session.out.emit(_record(held, pages))
            return
        show_pages(session.out, held, pages, names)


def show_pages(out: Output, held: Conversation, pages: ContextPages, names: Names) -> None:
    """Show the places of each entry's tokens, and the sums."""
    out.data.print(_table(held, pages, names))
    out.note(Text(_totals(pages), style="dim"))


def _table(held: Conversation, pages: ContextPages, names: Names) -> Table:
    table = plain_table()
    table.add_column("entry", no_wrap=True)
    table.add_column("role", no_wrap=True)
    table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("where", min_width=16)
    for entry in pages.entries:
        if entry.tokens:
            digits = entry.entry.hex()[:ID_DIGITS]
            table.add_row(
                digits, _who(held, entry.entry, names), f"{entry.tokens:,}", _where(entry)
            )
    return table


def _where(entry: PagedEntry) -> Text:
    """Return the places of an entry's tokens, with numbers where there are several."""
    found = [(number, words, color) for number, words, color in _places(entry) if number]
    pieces = [
        (words if len(found) == 1 else f"{number:,} {words}", color)
        for number, words, color in found
    ]
    return Text(" · ").join(Text(words, style=color) for words, color in pieces)


def _places(entry: PagedEntry) -> list[tuple[int, str, str]]:
    return [(getattr(entry, f"{name}_tokens"), words, color) for name, words, color in PLACES]


def _who(held: Conversation, entry: EntryId, names: Names) -> str:
    known = held.log.entries.get(entry)
    return row_of(held, known, names).who if known is not None else "not here yet"


def _source(held: Conversation, entry: EntryId) -> dict[str, str | None]:
    """Return who wrote an entry, and as what, for programs."""
    known = held.log.entries.get(entry)
    body = held.log.body(entry) if known is not None else None
    if isinstance(body, Message):
        role = word_of(Speaker, body.speaker)
    else:
        role = _who(held, entry, NOBODY)
    return {"role": role, "author": known.header.author.hex() if known is not None else None}


def _totals(pages: ContextPages) -> str:
    sums = _sums(pages)
    words = [f"{sums[name]:,} {said}" for name, said, _ in PLACES if sums[name]]
    parts = [f"{pages.tokens:,} tokens", *words]
    return " · ".join([*parts, f"a checkpoint holds {pages.stored_tokens:,}"])


def _sums(pages: ContextPages) -> dict[str, int]:
    return {
        name: sum(getattr(entry, f"{name}_tokens") for entry in pages.entries)
        for name, _, _ in PLACES
    }


def _record(held: Conversation, pages: ContextPages) -> dict[str, Any]:
    return {
        "conversation": held.id.hex(),
        "seal": pages.seal.hex() if pages.seal is not None else None,
        "tokens": pages.tokens,
        "checkpoint_tokens": pages.stored_tokens,
        **{f"{name}_tokens": number for name, number in _sums(pages).items()},
        "entries": [
            {
                "entry": entry.entry.hex(),
                **_source(held, entry.entry),
                "tokens": entry.tokens,
                **{f"{name}_tokens": getattr(entry, f"{name}_tokens") for name, _, _ in PLACES},
            }
            for entry in pages.entries
        ],
    }
