"""What a driver performs for a replica's core (spec/04-link §7)."""

from collections.abc import Iterable
from dataclasses import dataclass

from replica.commits import Conversations
from replica.ids import ConversationId, Position
from replica.link import Effects, Event, Frame, conversation_of
from replica.log import Entry


@dataclass(frozen=True, slots=True)
class ReplicaEffects:
    """Effects to perform in this order; `load` and `acked` at once, in any order."""

    persist: tuple[Entry, ...] = ()
    """Durable BEFORE any effect below; on failure the driver calls `disk_refused`."""
    send: tuple[Frame, ...] = ()
    """For the current link; nothing is lost where it has ended meanwhile."""
    deliver: tuple[Event, ...] = ()
    """For the application."""
    wake_at: float | None = None
    """Call handle_deadline then: seconds on the caller's monotonic clock."""
    load: tuple[ConversationId, ...] = ()
    """Read these from the store and call `loaded`, be it with nothing."""
    acked: tuple[tuple[ConversationId, tuple[Position, ...]], ...] = ()
    """Durable at the hub by now: worth saving, acknowledged again if forgotten."""

    @property
    def about(self) -> Conversations:
        """The conversations these effects concern."""
        named = (conversation_of(shown) for shown in (*self.send, *self.deliver))
        return {one for one in named if one is not None}


def joined(effects: Iterable[Effects]) -> Effects:
    """Return the effects of several inputs to a link as those of one."""
    all_of = tuple(effects)
    return Effects(
        tuple(entry for one in all_of for entry in one.persist),
        tuple(frame for one in all_of for frame in one.send),
        tuple(event for one in all_of for event in one.deliver),
    )
