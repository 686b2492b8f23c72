"""`antiphon warm`: let the host compute a context before it is asked."""

from typing import Annotated

import typer

from antiphon.cli.commands.send import HostOption, ProfileOption
from antiphon.cli.common import (
    ConversationArgument,
    Session,
    check_role,
    command,
    find_entry,
    find_key,
    linked_host,
)
from replica.conversation import Conversation, Place
from replica.ids import EntryId
from replica.io import HostCalls
from replica.link import named_profile


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "warm", rich_help_panel="Talk")
    async def warm(
        session: Session,
        conversation: ConversationArgument = None,
        *,
        at: Annotated[
            str | None,
            typer.Option(metavar="ENTRY", help="Seal or entry; default: the end of the branch."),
        ] = None,
        host: HostOption = None,
        profile: ProfileOption = None,
        keep: Annotated[
            int,
            typer.Option(metavar="MINUTES", min=0, max=60, help="Keep it in the host's memory."),
        ] = 0,
    ) -> None:
        """Let the model host compute the conversation so far, and no answer.

        The next answer then begins sooner. The host does it while it has no
        answer to compute; Ctrl-C ends it. With --keep, other conversations
        can't push it out of the host's memory for this many minutes.
        """
        async with session.replica() as replica:
            chosen = await session.choose(replica.store, conversation)
            await replica.load(chosen)
            await session.sync(replica, chosen)
            held = await replica.load(chosen)
            check_role(replica, held)
            place = (await session.choices(replica.store, chosen)).place(held)
            entry = last_of(held, place) if at is None else find_entry(held, at)
            wanted = find_key(host, held.log.membership.roles) if host is not None else None
            linked = linked_host(replica, held, wanted)
            named = (
                named_profile(linked.info.profiles, profile).digest if profile is not None else None
            )
            async with HostCalls(linked.info.address, replica.key, linked.key) as calls:
                warmed = await calls.warm(chosen, entry, profile=named, keep_s=60 * keep)
            found = (warmed.context_tokens, warmed.cached_tokens, warmed.restored_tokens)
            if session.out.as_json:
                session.out.emit(
                    {
                        "conversation": chosen.hex(),
                        "at": entry.hex(),
                        "host": linked.key.hex(),
                        "context_tokens": warmed.context_tokens,
                        "cached_tokens": warmed.cached_tokens,
                        "restored_tokens": warmed.restored_tokens,
                        "computed_tokens": computed_tokens(*found),
                        "kept_tokens": warmed.kept_tokens,
                    }
                )
                return
            session.out.show(warmed_words(*found))
            if keep:
                session.out.show(kept_words(warmed.kept_tokens, keep))


def warmed_words(context: int, cached: int, restored: int) -> str:
    """Return the sources of a context's tokens as text."""
    found = f"{cached:,} were cached, {restored:,} restored"
    return f"{context:,} tokens: {found}, {computed_tokens(context, cached, restored):,} computed"


def computed_tokens(context: int, cached: int, restored: int) -> int:
    """Return the number of a context's tokens that the host had to compute."""
    return context - cached - restored


def kept_words(tokens: int, minutes: int) -> str:
    """Return how much of a context stays in memory, and for how long, as text."""
    unit = "minute" if minutes == 1 else "minutes"
    return f"{tokens:,} tokens stay in the host's memory for {minutes} {unit}"


def last_of(held: Conversation, place: Place) -> EntryId:
    """Return the latest parent of a place, behind which the next message goes."""
    return max(place.parents, key=lambda i: held.log.entries[i].order_key)
