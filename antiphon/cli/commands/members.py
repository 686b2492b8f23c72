"""`antiphon members`: the members of a conversation, their names, and their removal."""

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from antiphon.cli.common import (
    ConversationArgument,
    Group,
    MemberUnknown,
    Session,
    Unconfirmed,
    check_readable,
    command,
    ending_of,
    is_confirmed,
    load_from,
)
from antiphon.cli.views import brief, harmless, plain_table, title_of
from replica.conversation import Conversation, check_owner_stays
from replica.ids import PublicKey, key_from_hex, short
from replica.io import SavedAcks, begin, petnames
from replica.log import Role
from replica.refusals import ArgumentInvalid

_Keys = dict[PublicKey, str]


class MembersGroup(Group):
    """A group whose `list` is run where no command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `list` in front of anything but a command and the help."""
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(cls=MembersGroup)
    app.add_typer(
        group, name="members", help="List, name or remove members.", rich_help_panel="Share"
    )

    @command(group, "list")
    async def list_(session: Session, conversation: ConversationArgument = None) -> None:
        """List the members, with your names for them, as of the last contact with the hub.

        `antiphon status` asks the hub first.
        """
        async with session.reading() as store:
            chosen = await session.choose(store, conversation)
            held = check_readable(await load_from(store, chosen))
            names = await petnames.names(store)
            acks = await SavedAcks.of_hub(store, session.settings.hub)
            ending = await ending_of(session, store, acks, held)
        membership = held.log.membership
        table = plain_table("key", "roles", "name", "state", flexible=("name",))
        for key in sorted(membership.roles, key=lambda k: (membership.ranks.get(k, (99, 0)), k)):
            _add(session, table, held, key, names.get(key, ""))
        if not session.out.as_json:
            session.out.data.print(table)
        if ending is not None:
            session.out.note(f"{brief(ending)}. {ending.next_step}")

    @command(group, "name")
    async def name(
        session: Session,
        key: Annotated[str, typer.Argument(metavar="KEY", help="First digits of a member's key.")],
        name: Annotated[str, typer.Argument(metavar="NAME", help="Your name for it.")],
        conversation: ConversationArgument = None,
    ) -> None:
        """Name a key. The name is stored in this replica only."""
        async with session.replica(linked=False) as replica:
            held = await replica.load(await session.choose(replica.store, conversation))
            names = await petnames.names(replica.store)
            found = _find(held, key, names)
            same = (k for k, v in names.items() if v.casefold() == name.casefold() and k != found)
            if (other := next(same, None)) is not None:
                raise ArgumentInvalid(f"{name} is the name of key {short(other)} already")
            await petnames.set_name(replica, found, name)
            session.out.note(f"{short(found)} is {name}")

    command(group, "remove")(remove)


async def remove(
    session: Session,
    member: Annotated[str, typer.Argument(metavar="MEMBER", help="A name, or a key's digits.")],
    conversation: ConversationArgument = None,
    *,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; leave also as the last owner.")
    ] = False,
) -> int:
    """Remove a member permanently; their messages so far stay.

    Only an owner that ranks above a key can remove it: the key that began the conversation ranks
    first, any other one step below the highest owner that granted it its role. Remove your own
    key to leave the conversation; the command asks first.
    """
    async with session.replica() as replica:
        chosen = await session.choose(replica.store, conversation)
        held = await replica.load(chosen)
        await session.sync(replica, chosen)
        found = _find(held, member, await petnames.names(replica.store))
        if found == replica.public and not yes and not _leaves(session, held):
            session.out.note("you are still a member")
            return 1
        await begin.remove(replica, chosen, found, leave_ownerless=yes)
        if not await session.sync(replica, chosen):
            await session.say_offline(replica, held)
        if session.out.as_json:
            session.out.emit({"conversation": chosen.hex(), "removed": found.hex()})
        else:
            session.out.show(f"{short(found)} is no member any more")
    return 0


def _leaves(session: Session, held: Conversation) -> bool:
    """Ask whether this key leaves for good. Raises LastOwner, Unconfirmed."""
    check_owner_stays(held, session.public())
    return is_confirmed(
        session.out,
        [f"{short(held.id)}  {title_of(held)}"],
        "Leave it for good? This key can't come back.",
        Unconfirmed("there is no terminal to ask whether to leave for good"),
    )


def _add(session: Session, table: Table, held: Conversation, key: PublicKey, name: str) -> None:
    """Add a member to the table; with --json, write it."""
    membership = held.log.membership
    roles = sorted(Role(role).name.lower() for role in membership.roles[key])
    is_ours = key == session.own_key()
    state = "member" if membership.is_member(key) else "removed"
    if session.out.as_json:
        session.out.emit(
            {"key": key.hex(), "name": name, "roles": roles, "state": state, "ours": is_ours}
        )
        return
    shown = " ".join(filter(None, (name, "(you)" if is_ours else "")))
    table.add_row(
        short(key), ", ".join(roles), Text(harmless(shown)), "" if state == "member" else state
    )


def _find(held: Conversation, text: str, names: _Keys) -> PublicKey:
    """Return the member with this name or key. Raises MemberUnknown."""
    roles = held.log.membership.roles
    named = [key for key in roles if names.get(key) == text]
    try:
        named = named or [key for key in roles if key == key_from_hex(text)]
    except ValueError:
        digits = text.strip().lower()
        named = named or [key for key in roles if digits and key.hex().startswith(digits)]
    if len(named) != 1:
        many = "several members are" if named else "no member is"
        raise MemberUnknown(f"{many} called {text}")
    return named[0]
