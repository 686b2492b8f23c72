"""`antiphon cancel`: cancel answers in progress, or requests whose host is gone."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from antiphon.cli.common import (
    CancelForbidden,
    ConversationArgument,
    NothingAwaited,
    Session,
    abandon_call,
    check_calls,
    command,
    find_entry,
    say_calls,
)
from antiphon.cli.views import Names, counted
from replica.conversation import (
    Conversation,
    Place,
    awaited,
    calls_ahead,
    place_on_branch,
    removal_of,
)
from replica.ids import EntryId, PublicKey, short
from replica.io import Replica, cancels
from replica.order import may_end
from replica.refusals import ArgumentInvalid


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
        request: Annotated[
            str | None,
            typer.Option(
                "--request", metavar="ID", help="Cancel this request instead, of any branch."
            ),
        ] = None,
    ) -> None:
        """Cancel the answers that the next message would wait for.

        The text received so far is kept. The next message no longer waits for these
        answers. An answer that arrives later is shown beside the branch. Only owners can
        cancel the requests of other members. With --call, the branch continues without the
        result of a tool, which may still be running.
        """
        if call is not None and request is not None:
            raise ArgumentInvalid("--call and --request each stand alone")
        async with session.replica() as replica:
            chosen = await session.choose(replica.store, conversation)
            await replica.load(chosen)
            await session.sync(replica, chosen)
            held = await replica.load(chosen)
            choices = await session.choices(replica.store, chosen)
            place, closed = choices.place(held), tuple[EntryId, ...]()
            if call is not None:
                await abandon_call(replica, held, place, call)
            elif request is not None:
                closed = await cancel_request(replica, held, find_entry(held, request))
            else:
                check_calls(session, replica, held, place)
                closed = await cancel_awaited(replica, held, place)
            if replica.hub.is_linked:
                await replica.wait_synced(chosen, session.settings.sync_timeout_s)
            if call is not None:
                session.out.note(f"call {call} is abandoned; the branch goes on without its result")
                _emit(session, held, closed, call=call)
            elif request is not None:
                session.out.note(f"the request {short(closed[0])} is cancelled")
                _emit(session, held, closed)
            else:
                names = await session.names(replica.store, held)
                report_cancelled(session, replica, held, choices.place(held), closed, names)


async def cancel_awaited(replica: Replica, held: Conversation, place: Place) -> tuple[EntryId, ...]:
    """Cancel every request that `place` waits for and this key may cancel; return them.

    An owner may cancel all of them, others their own. Raises NothingAwaited, KeyRemoved, and
    CancelForbidden if all of them are other members': such a CANCEL has no effect.
    """
    waiting = awaited(held, place)
    if not waiting:
        raise NothingAwaited
    return await _cancel(replica, held, waiting)


async def cancel_request(
    replica: Replica, held: Conversation, request: EntryId
) -> tuple[EntryId, ...]:
    """Cancel one request, wherever it is; return it.

    Raises ArgumentInvalid for another entry, NothingAwaited for a request that is over, and what
    `cancel_awaited` raises.
    """
    if request not in held.order.requests:
        raise ArgumentInvalid(f"{short(request)} is no request: `antiphon log --graph` shows them")
    # An answer that no context can have, such as a void one, ends no wait.
    is_awaited = request in awaited(held, place_on_branch(held, request))
    if held.order.generation_of(request) is not None and not is_awaited:
        raise NothingAwaited(f"the request {short(request)} has its answer already")
    if held.order.closing_cancels(request):
        raise NothingAwaited(f"the request {short(request)} is cancelled already")
    return await _cancel(replica, held, [request])


async def _cancel(
    replica: Replica, held: Conversation, waiting: Sequence[EntryId]
) -> tuple[EntryId, ...]:
    removal = removal_of(held, replica.public)
    if removal is not None:
        raise removal
    closed = tuple(i for i in waiting if may_cancel(held, replica.public, i))
    if not closed:
        author = held.log.entries[waiting[0]].header.author
        raise CancelForbidden(
            f"only its author {short(author)} or an owner may cancel {short(waiting[0])}"
        )
    for request in closed:
        await cancels.cancel(replica, held.id, request)
    return closed


def may_cancel(held: Conversation, key: PublicKey, request: EntryId) -> bool:
    """Say whether a CANCEL of a key would end the wait for the answer to a request."""
    return may_end(key, held.log.entries[request], held.log.membership)


def report_cancelled(
    session: Session,
    replica: Replica,
    held: Conversation,
    place: Place,
    closed: Sequence[EntryId],
    names: Names,
) -> None:
    """Print how many requests are cancelled, and what is awaited still; with --json the ids.

    `place` is that of the next message as it is now, which need not follow what it followed.
    """
    requests, left = counted(len(closed), "request", "requests"), awaited(held, place)
    waits = _waits(replica, held, left, names)
    if not left and calls_ahead(held, place):
        waits = "waits for a tool, not for an answer"
    session.out.note(f"{requests} cancelled; the next message {waits}")
    say_calls(session, replica, held, place, "the next message")
    calls = [one.call.call_id for one in calls_ahead(held, place)]
    _emit(session, held, closed, left=left, calls=calls)


def _waits(replica: Replica, held: Conversation, left: Sequence[EntryId], names: Names) -> str:
    """Return which answers the next message waits for, as words behind it."""
    if not left:
        return "does not wait for an answer"
    whose = list(dict.fromkeys(names.of(held.log.entries[i].header.author) for i in left))
    answers = "answer" if len(left) == 1 else "answers"
    words = f"waits for the {answers} to {' and '.join(whose)}"
    if any(may_cancel(held, replica.public, i) for i in left):
        return words
    asker = whose[0] if len(whose) == 1 else "an asker"
    return f"{words}, which only {asker} or an owner can cancel"


def _emit(
    session: Session,
    held: Conversation,
    closed: Sequence[EntryId],
    *,
    left: Sequence[EntryId] = (),
    call: str | None = None,
    calls: Sequence[str] = (),
) -> None:
    if session.out.as_json:
        record: dict[str, Any] = {"cancelled": [i.hex() for i in closed], "abandoned": call}
        record |= {"awaited": [i.hex() for i in left], "calls": list(calls)}
        session.out.emit({"conversation": held.id.hex()} | record)
