"""`antiphon branches`, `switch` and `title`: the shared document's names, read and set.

A branch is a leaf of the tree of seals; its name, for all members, is in the document.
A name stands for the branch that goes on below its seal.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.text import Text

from antiphon.cli.common import (
    BranchUnknown,
    Choices,
    ConversationArgument,
    EntryUnknown,
    Session,
    check_readable,
    check_role,
    command,
    find_entry,
    load_from,
    next_command,
)
from antiphon.cli.views import entries_at, is_undone, one_line, plain_table, words_of
from replica.conversation import Conversation, Place, check_name, place_on_branch
from replica.ids import EntryId
from replica.io import Replica, documents
from replica.log import Message
from replica.order import SealNode, branch_ends

DIGITS_MIN = 6
_PREVIEW_CELLS = 40
_NAMES_CELLS = 32
"""Any writer can give names, and of any length: the other columns stay."""
_TITLE_CELLS = 128
"""All that `title` sets fit; another writer may have set a longer one."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One branch, for people."""

    node: SealNode
    digits: str
    """The first digits of its last seal, as many as make it unique in the conversation."""
    names: tuple[str, ...]
    turns: int
    last: str
    """The last message on it, in one line."""
    is_chosen: bool


def unique_digits(entry: EntryId, among: Collection[EntryId], least: int = DIGITS_MIN) -> str:
    """Return the fewest hex digits, at least `least`, that begin no other id."""
    digits = entry.hex()
    count = least
    while sum(one.hex().startswith(digits[:count]) for one in among) > 1:
        count += 1
    return digits[:count]


def branches_of(held: Conversation, choices: Choices) -> list[Branch]:
    """Return the branches, the one with the latest activity last."""
    place, named, order = choices.place(held), documents.branch_names(held), held.order
    ends = {name: order.branch_end(order.nodes[seal]) for name, seal in named.items()}
    found = []
    for tip in branch_ends(order):
        request = tip.seal.request
        names = tuple(sorted(name for name, end in ends.items() if end is tip))
        digits = unique_digits(tip.id, held.log.entries)
        last = _last_words(held, place_on_branch(held, request))
        found.append(Branch(tip, digits, names, len(tip.chain()), last, place.basis == tip.id))
    return found


def _last_words(held: Conversation, end: Place) -> str:
    """Return the last message of the branch that ends at a place, in one line."""
    for entry in reversed(entries_at(held, end)):
        body = held.log.body(entry.id)
        if isinstance(body, Message) and not is_undone(held, entry):
            return " ".join(words_of(body.parts).split())
    return ""


def find_branch(held: Conversation, wanted: str) -> SealNode:
    """Return the end of the branch with this name, or that holds the entry with these digits.

    Where others began a branch behind what was named, it is that of the line that was named.

    Raises BranchUnknown, PrefixAmbiguous.
    """
    named = documents.branch_names(held)
    if wanted in named:
        named_seal = held.order.nodes[named[wanted]]
        return held.order.branch_end(named_seal) or named_seal
    try:
        entry = find_entry(held, wanted)
    except EntryUnknown as error:
        raise BranchUnknown(f"no branch is called '{wanted}', and no entry begins so") from error
    node = held.order.nodes.get(entry) or held.order.listed_by.get(entry)
    parents = held.log.entries[entry].header.parents
    node = node or (held.order.nodes.get(parents[0]) if parents else None)
    if node is None:
        raise BranchUnknown(f"{wanted} is not on a branch yet: no seal lists it")
    return held.order.branch_end(node) or node


def check_label(name: str) -> str:
    """Return a title or a name that can be shown in one line. Raises ArgumentInvalid."""
    return check_name(name.strip())


def show_branches(session: Session, held: Conversation, choices: Choices) -> None:
    """Print the branches; the one that the next message continues is marked."""
    found = branches_of(held, choices)
    if session.out.as_json:
        for branch in found:
            session.out.emit(_record(held, branch))
        return
    table = plain_table()
    for column in ("", "branch", "name"):
        table.add_column(column, no_wrap=True)
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("last message", min_width=8)
    for branch in found:
        names = Text(one_line(", ".join(branch.names), _NAMES_CELLS), style="bold")
        last = Text(one_line(branch.last, _PREVIEW_CELLS), no_wrap=True, overflow="ellipsis")
        mark = "*" if branch.is_chosen else ""
        table.add_row(mark, branch.digits, names, str(branch.turns), last)
    if found:
        session.out.data.print(table)
    if not found:
        session.out.note("no branch yet: nothing was answered")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "branches", rich_help_panel="Look")(branches)
    command(app, "switch", rich_help_panel="Talk")(switch)
    command(app, "title", rich_help_panel="Talk")(title)


async def branches(
    session: Session,
    conversation: ConversationArgument = None,
    *,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name the branch for all members.")
    ] = None,
) -> None:
    """List the branches; with --name, name the one that the next message continues."""
    if name is not None:
        async with session.replica() as replica:
            held = await _synced(session, replica, conversation)
            choices = await session.choices(replica.store, held.id)
            await name_branch(replica, held, choices, name)
            await replica.wait_synced(held.id, session.settings.sync_timeout_s)
            show_branches(session, held, choices)
        return
    async with session.reading() as store:
        chosen = await session.choose(store, conversation)
        held = check_readable(await load_from(store, chosen))
        show_branches(session, held, await session.choices(store, chosen))


async def name_branch(replica: Replica, held: Conversation, choices: Choices, name: str) -> None:
    """Name the chosen branch in the document. Raises BranchUnknown before its first answer."""
    check_role(replica, held)
    place = choices.place(held)
    if place.basis is None:
        raise BranchUnknown("nothing was sealed on this branch yet")
    await documents.name_branch(replica, held.id, check_label(name), place.basis)


async def switch(
    session: Session,
    branch: Annotated[
        str, typer.Argument(metavar="BRANCH", help="Its name, or digits of an entry on it.")
    ],
    conversation: ConversationArgument = None,
) -> None:
    """Let the next message continue another branch."""
    async with session.replica(linked=False) as replica:
        chosen = await session.choose(replica.store, conversation)
        held = check_readable(await replica.load(chosen))
        choices = await switch_to(session, replica, held, branch)
        show_branches(session, held, choices)


async def switch_to(session: Session, replica: Replica, held: Conversation, branch: str) -> Choices:
    """Save another branch as the one that the next message continues."""
    node = find_branch(held, branch)
    choices = await session.choices(replica.store, held.id)
    choices.at, choices.branch = "", node.seal.request.hex()
    await session.choose_next(replica.store, held.id, choices)
    return choices


async def title(
    session: Session,
    text: Annotated[str | None, typer.Argument(metavar="TITLE", help="The new title.")] = None,
    *,
    to: Annotated[
        str | None,
        typer.Option("--to", "-c", metavar="ID", help="Conversation; default: the last used."),
    ] = None,
) -> None:
    """Print the title of a conversation, or set it for all members."""
    if text is None:
        async with session.reading() as store:
            held = check_readable(await load_from(store, await session.choose(store, to)))
            found = documents.title_of(held)
    else:
        async with session.replica() as replica:
            held = await _synced(session, replica, to)
            check_role(replica, held)
            found = check_label(text)
            await documents.set_title(replica, held.id, found)
            if not await replica.wait_synced(held.id, session.settings.sync_timeout_s):
                await session.say_offline(replica, held)
    if session.out.as_json:
        session.out.emit(title_record(held, found))
    elif found is None:
        step = next_command(session.settings, "title", "TITLE")
        session.out.note(f"it has no title yet; next: {step}")
    else:
        session.out.show(one_line(found, _TITLE_CELLS))


async def _synced(session: Session, replica: Replica, prefix: str | None) -> Conversation:
    chosen = await session.choose(replica.store, prefix)
    await replica.load(chosen)
    await session.sync(replica, chosen)
    return check_readable(await replica.load(chosen))


def title_record(held: Conversation, title: str | None) -> dict[str, Any]:
    """Return the title of a conversation as a JSON object."""
    return {"conversation": held.id.hex(), "title": title}


def _record(held: Conversation, branch: Branch) -> dict[str, Any]:
    return {
        "conversation": held.id.hex(), "seal": branch.node.id.hex(),
        "names": list(branch.names), "turns": branch.turns, "last": branch.last,
        "is_chosen": branch.is_chosen,
    }  # fmt: skip
