"""The effects that a driver performs for a replica's core (spec/04-link §7)."""

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
    """Entries that are durable before any effect below; on failure call `disk_refused`."""
    send: tuple[Frame, ...] = ()
    """Frames for the current link; drop them if it has ended meanwhile."""
    deliver: tuple[Event, ...] = ()
    """Events for the application."""
    wake_at: float | None = None
    """Call handle_deadline then: seconds on the caller's monotonic clock."""
    load: tuple[ConversationId, ...] = ()
    """Conversations to read from the store; call `loaded` for each, found or not."""
    closed: tuple[ConversationId, ...] = ()
    """Conversations to drop from memory: see `listed.leaves`."""
    acked: tuple[tuple[ConversationId, tuple[Position, ...]], ...] = ()
    """Positions durable at the hub, to save; a lost one is acknowledged again."""

    @property
    def about(self) -> Conversations:
        """The conversations these effects concern."""
        named = (conversation_of(shown) for shown in (*self.send, *self.deliver))
        return {one for one in named if one is not None}


def joined(effects: Iterable[Effects]) -> Effects:
    """Return the effects of several inputs to a link as the effects of one."""
    all_of = tuple(effects)
    return Effects(
        tuple(entry for one in all_of for entry in one.persist),
        tuple(frame for one in all_of for frame in one.send),
        tuple(event for one in all_of for event in one.deliver),
    )
