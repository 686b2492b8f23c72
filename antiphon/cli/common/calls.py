"""The open calls of tools that a branch waits for: whose they are, and how they end."""

from antiphon.cli.common.errors import NothingAwaited
from antiphon.cli.common.next_command import next_command
from antiphon.cli.common.session import Session
from replica.conversation import (
    ABANDONED,
    Conversation,
    Place,
    awaited,
    call_to_close,
    calls_ahead,
    closing_result,
    is_on_branch,
)
from replica.errors import with_step
from replica.ids import short
from replica.io import Replica
from replica.log import Conflict
from replica.refusals import ArgumentInvalid, NotAllowed


def check_call(
    session: Session, replica: Replica, held: Conversation, place: Place, call_id: str
) -> None:
    """Refuse a result that would close no call. Raises ArgumentInvalid, NotAllowed."""
    try:
        call = call_to_close(held, place, call_id, replica.public, is_error=False)
    except NotAllowed as error:
        if _may_abandon(replica, held, place, call_id):
            with_step(error, f"`{abandon_step(session, call_id)}` goes on without a result.")
        raise
    if not is_on_branch(held, place, call):
        raise ArgumentInvalid(
            f"call {call_id} is open on another branch: give --at {short(call.request)}"
        )


async def abandon_call(replica: Replica, held: Conversation, place: Place, call_id: str) -> None:
    """Close an open call with the error "abandoned". Raises ArgumentInvalid, NotAllowed."""
    body, there = closing_result(held, place, call_id, replica.public, ABANDONED, is_error=True)
    await replica.append(held.id, body, parents=there.parents, basis=there.basis)


def check_results(held: Conversation, place: Place) -> None:
    """Refuse a branch that would begin between a call and its result. Raises ArgumentInvalid."""
    if place.conflict is not Conflict.FORK:
        return
    for one in calls_ahead(held, place):
        raise ArgumentInvalid(
            f"a branch that begins there has no result of the tool call {one.call.call_id}"
            f" ({one.call.name}): begin it behind that result"
        )


def abandon_step(session: Session, call_id: str) -> str:
    """Return the command that abandons a call."""
    return next_command(session.settings, "cancel", "--call", call_id)


def say_calls(
    session: Session, replica: Replica, held: Conversation, place: Place, what: str = "this"
) -> None:
    """Print a note for each call without a result that a message, named `what`, waits behind."""
    owners = held.log.membership.owner_keys()
    for one in calls_ahead(held, place):
        call = f"the tool call {one.call.call_id} ({one.call.name})"
        abandon = abandon_step(session, one.call.call_id)
        if one.asked.executor != replica.public:
            session.out.note(f"note: {call} of {short(one.asked.executor)} has no result yet")
            if one.asked.may_close(replica.public, owners, is_error=True):
                session.out.note(f"      `{abandon}` goes on without it")
            continue
        session.out.note(f"note: {call} of your key has no result; {what} waits for it")
        if not replica.processes.is_claimed(held.id + one.request):
            step = next_command(session.settings, "send", "TEXT", "--result", one.call.call_id)
            session.out.note(f"      no program works on it; run it again, or `{step}`")
            session.out.note(f"      `{abandon}` goes on without it")


def check_calls(session: Session, replica: Replica, held: Conversation, place: Place) -> None:
    """Name the call that a place waits for, if it waits for no answer. Raises NothingAwaited."""
    if awaited(held, place):
        return
    for one in calls_ahead(held, place):
        call_id = one.call.call_id
        error = NothingAwaited(
            f"no answer is awaited on this branch, but the result of the tool call {call_id}"
            f" ({one.call.name})"
        )
        if not _may_abandon(replica, held, place, call_id):
            raise with_step(error, "Wait for the result, or let an owner abandon the call.")
        raise with_step(error, f"`{abandon_step(session, call_id)}` goes on without it.")


def _may_abandon(replica: Replica, held: Conversation, place: Place, call_id: str) -> bool:
    try:
        call_to_close(held, place, call_id, replica.public, is_error=True)
    except (ArgumentInvalid, NotAllowed):
        return False
    return True
