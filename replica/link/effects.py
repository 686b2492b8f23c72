"""The effects a link returns to its driver: persist, send, deliver (spec/04-link §7)."""

from dataclasses import dataclass, field

from replica.ids import ConversationId
from replica.link.events import DraftReceived, Event
from replica.link.frame import Frame
from replica.link.messages import Message
from replica.log import Entry


def conversation_of(shown: Frame | Message | Event) -> ConversationId | None:
    """Return the conversation a frame, message or event is about; None if it is about the link."""
    about: object = shown
    if isinstance(shown, Frame):
        about = shown.message
    elif isinstance(shown, DraftReceived):
        about = shown.draft
    conversation: ConversationId | None = getattr(about, "conversation", None)
    return conversation


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects that the driver performs now, in this order."""

    persist: tuple[Entry, ...] = ()
    """Durable before any frame of `send` is written; on failure nothing below is performed."""
    send: tuple[Frame, ...] = ()
    """Frames to write on this link, in order."""
    deliver: tuple[Event, ...] = ()
    """Events for the application, after `persist`."""
    wake_at: float | None = None
    """Time to call handle_deadline: seconds on the caller's monotonic clock."""


NOTHING = Effects()


@dataclass(slots=True)
class EffectsBuilder:
    """Collects the effects of one input."""

    persist: list[Entry] = field(default_factory=list)
    send: list[Frame] = field(default_factory=list)
    deliver: list[Event] = field(default_factory=list)

    def build(self, wake_at: float | None) -> Effects:
        """Return the collected effects."""
        return Effects(tuple(self.persist), tuple(self.send), tuple(self.deliver), wake_at)
