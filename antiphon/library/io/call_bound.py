"""The limit of the calls that a run makes: a model may keep calling tools forever."""

from antiphon.library.errors import RunTooLong
from antiphon.library.io.handle import Handle, append
from replica.conversation import Conversation as Held
from replica.conversation import (
    KeyedRun,
    OpenCall,
    calls_made,
    has_not_called,
    not_called,
    result_place,
)
from replica.log import Message, Speaker


def check_count(held: Held, run: KeyedRun, calls_max: int) -> None:
    """Refuse to ask on behind a call that was not made and may not be made. Raises RunTooLong."""
    made = calls_made(held, run)
    if run.requests and made >= calls_max and has_not_called(held, run.requests[-1]):
        raise RunTooLong(f"the run has made {made} of {calls_max} calls, and the model wants more")


async def next_call(
    at: Handle, held: Held, run: KeyedRun, calls: tuple[OpenCall, ...], calls_max: int
) -> OpenCall:
    """Return the open call to make next; one that was started is made whatever the bound.

    Calls beyond `calls_max` are closed as errors: left open, they would keep every other turn of
    the branch waiting. Raises RunTooLong then.
    """
    made = calls_made(held, run)
    if made < calls_max:
        return calls[0]
    for one in calls:
        if one.started is not None:
            return one
    message = Message(Speaker.TOOL, tuple(map(not_called, calls)))
    await append(at, message, result_place(held, run.requests[-1]))
    raise RunTooLong(
        f"the run has made {made} of {calls_max} calls, and the model calls"
        f" {calls[0].call.name!r} again"
    )
