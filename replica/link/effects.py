"""The work a link hands to its driver: persist, send, deliver (spec/04-link §7)."""

from dataclasses import dataclass, field

from replica.ids import ConversationId
from replica.link.events import DraftReceived, Event
from replica.link.frame import Frame
from replica.link.messages import Message
from replica.log import Entry


def conversation_of(shown: Frame | Message | Event) -> ConversationId | None:
    """Return the conversation a frame, message or event is about; None for the link's own."""
    about: object = shown
    if isinstance(shown, Frame):
        about = shown.message
    elif isinstance(shown, DraftReceived):
        about = shown.draft
    conversation: ConversationId | None = getattr(about, "conversation", None)
    return conversation


@dataclass(frozen=True, slots=True)
class Effects:
    """What the driver does now, in this order."""

    persist: tuple[Entry, ...] = ()
    """Durable BEFORE anything in `send` leaves; on failure nothing below happens."""
    send: tuple[Frame, ...] = ()
    """In order, on this link."""
    deliver: tuple[Event, ...] = ()
    """For the application, after `persist`."""
    wake_at: float | None = None
    """Call handle_deadline then: seconds on the caller's monotonic clock."""


@dataclass(slots=True)
class EffectsBuilder:
    """Collects effects while one input is handled."""

    persist: list[Entry] = field(default_factory=list)
    send: list[Frame] = field(default_factory=list)
    deliver: list[Event] = field(default_factory=list)

    def build(self, wake_at: float | None) -> Effects:
        """Freeze what was collected."""
        return Effects(tuple(self.persist), tuple(self.send), tuple(self.deliver), wake_at)
