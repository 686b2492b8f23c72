"""`antiphon cancel`: cancel answers in progress, or requests whose host is gone."""

from typing import Annotated

import typer

from antiphon.cli.calls import abandon_call
from antiphon.cli.command import ConversationArgument, command
from antiphon.cli.errors import NothingAwaited
from antiphon.cli.rows import counted
from antiphon.cli.session import Session
from replica.conversation import Conversation, Place, awaited, removal_of
from replica.ids import EntryId, short
from replica.io import Replica, cancels
from replica.refusals import NotAllowed


def register(app: typer.Typer) -> None:
    """Add the command."""

    @command(app, "cancel", rich_help_panel="Talk")
    async def cancel(
        session: Session,
        conversation: ConversationArgument = None,
        call: Annotated[
            str | None,
            typer.Option("--call", metavar="ID", help="Abandon this open call of a tool instead."),
        ] = None,
    ) -> None:
        """Cancel the answers that the next message would wait for.

        The text received so far is kept. The next message no longer waits for these
        answers. An answer that arrives later is shown beside the branch. With --call,
        the branch continues without the result of a tool, which may still be running.
        """
        async with session.replica() as replica:
            chosen = await session.choose(replica.store, conversation)
            await replica.load(chosen)
            await session.sync(replica, chosen)
            held = await replica.load(chosen)
            place = (await session.choices(replica.store, chosen)).place(held)
            closed = list[EntryId]()
            if call is not None:
                await abandon_call(replica, held, place, call)
            else:
                closed = await cancel_awaited(replica, held, place)
            if replica.hub.is_linked:
                await replica.wait_synced(chosen, session.settings.sync_timeout_s)
            if call is not None:
                session.out.note(f"call {call} is abandoned; the branch goes on without its result")
                _emit(session, held, closed, call)
            else:
                report_closed(session, held, closed)


async def cancel_awaited(replica: Replica, held: Conversation, place: Place) -> list[EntryId]:
    """Cancel every request that `place` waits for, and return their ids.

    Raises NothingAwaited, KeyRemoved, and NotAllowed if a request is another member's and
    this key is no owner, since such a CANCEL has no effect.
    """
    waiting = awaited(held, place)
    if not waiting:
        raise NothingAwaited
    is_owner = held.log.membership.is_owner(replica.public)
    for request in waiting:
        author = held.log.entries[request].header.author
        if not is_owner and author != replica.public:
            raise removal_of(held, replica.public) or NotAllowed(
                f"only its author {short(author)} or an owner may cancel {short(request)}"
            )
    for request in waiting:
        await cancels.cancel(replica, held.id, request)
    return waiting


def report_closed(session: Session, held: Conversation, closed: list[EntryId]) -> None:
    """Print the number of cancelled requests, and their ids with --json."""
    requests = counted(len(closed), "request", "requests")
    session.out.note(f"{requests} cancelled; the next message does not wait for an answer")
    _emit(session, held, closed)


def _emit(
    session: Session, held: Conversation, closed: list[EntryId], call: str | None = None
) -> None:
    if session.out.as_json:
        done = {"cancelled": [i.hex() for i in closed], "abandoned": call}
        session.out.emit({"conversation": held.id.hex()} | done)
