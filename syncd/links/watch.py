"""A Watch as a link whose client side the hub plays itself (spec/04-link §9).

Pure. The request becomes an Open, gRPC's flow control becomes the credit, and
the hub sends the heartbeats of the watcher, whose only message is its request.
"""

from collections.abc import Sequence
from heapq import merge
from itertools import islice

from replica.errors import RequestRefused
from replica.ids import ConversationId, Position, Track
from replica.limits import VERSION
from replica.link import (
    STEP_HEADS,
    Close,
    Credit,
    Fault,
    FlowControl,
    Frame,
    Hello,
    Message,
    Open,
    Ping,
    Steps,
)
from replica.log import digest_of_packed, head_bytes
from replica.refusals import (
    ArgumentInvalid,
    ConversationUnknown,
    EntriesMissing,
    LanesDiverged,
)
from syncd.links.hint import Answered, Hint


class CursorDiverged(RequestRefused):
    """The cursor names another entry than the hub holds at that position."""

    reason = "CURSOR_DIVERGED"
    next_step = "Watch again from an empty cursor; if the lane is yours, begin a new epoch."


GREETING = Hello((VERSION,))
HEARTBEAT = Ping(0)
"""Received every HEARTBEAT_S, since the link would end as idle otherwise."""


def opening_steps(
    conversation: ConversationId, cursor: Sequence[Position], *, drafts: bool
) -> Steps[Open]:
    """Return the Open of a watcher that holds the lanes up to `cursor`, in steps.

    Raises ArgumentInvalid.
    """
    tracks, runs, packed = frozenset(Track), list[list[Position]](), list[bytes]()
    for at in range(0, len(cursor), STEP_HEADS):
        part = cursor[at : at + STEP_HEADS]
        if any(head.lane.track not in tracks for head in part):
            raise ArgumentInvalid("cursor: no such track")
        runs.append(sorted(part))
        if len(part) == STEP_HEADS:
            yield
    ordered = merge(*runs)
    while part := list(islice(ordered, STEP_HEADS)):
        packed += map(head_bytes, part)
        if len(part) == STEP_HEADS:
            yield
    # With the digest of the cursor itself, "nothing new" is answered as "equal".
    return Open(conversation, digest_of_packed(packed), tuple(cursor), drafts)


class Taken:
    """The frames that a watcher has taken: its end of the link's flow control (LINK-93)."""

    def __init__(self) -> None:
        """Start with one window."""
        self._flow = FlowControl()

    def note(self, frame: Frame) -> Credit | None:
        """Count a frame that gRPC's flow control let through; return the Credit that is due."""
        self._flow.count_received(frame.message, len(frame.data))
        limit = self._flow.grant()
        return Credit(limit) if limit is not None else None


def end_of(item: Message | Hint | Answered) -> Fault | None:
    """Return the fault that ends a Watch with this message of the hub; None if it goes on."""
    match item:
        case Fault(reason=EntriesMissing.reason):
            return None  # the hub lacks bodies; a watcher sends nothing, others may
        case Fault(reason=LanesDiverged.reason):
            return Fault.of(CursorDiverged(item.detail), item.conversation, item.entry)
        case Fault():
            return item
        case Close(_, fault):
            return fault or Fault.of(ConversationUnknown())
        case _:
            return None
