"""A client's side of a link with one conversation, for tests of its single steps."""

from dataclasses import dataclass, field, replace

from replica.conversation.conversation import Conversation
from replica.conversation.shelf import MemoryShelf
from replica.link.channel import Channel
from replica.link.client_side import ClientSide
from replica.link.effects import EffectsBuilder
from replica.link.messages import Fault, Message, Opened
from replica.log.entry import Entry
from tests.support.writers import Writer, said


@dataclass
class Scene:
    """A client with one conversation of five messages, open on a link."""

    ada: Writer = field(default_factory=lambda: Writer(1))
    sent: list[Message] = field(default_factory=list)
    out: EffectsBuilder = field(default_factory=EffectsBuilder)
    shelf: MemoryShelf = field(default_factory=MemoryShelf)

    def __post_init__(self) -> None:
        self.genesis = self.ada.genesis()
        self.id = self.genesis.conversation
        self.line: list[Entry] = [self.genesis]
        for number in range(5):
            self.line.append(self.ada.write(self.id, said(str(number)), parents=self.line[-1:]))
        self.held = Conversation.restore(self.id, self.line)
        self.shelf.add(self.held)
        self.side = ClientSide(
            self.shelf,
            send=lambda message, _out: self.sent.append(message),
            may_create=lambda _key: True,
            entries_max=None,
        )

    def channel(self, *acked: Entry) -> Channel:
        positions = [entry.position for entry in acked]
        return self.side.add_channel(self.id, positions, drafts=True)

    def receive(self, message: Message, now: float = 0.0) -> None:
        """Receive a message; an Opened without a number answers the last Open."""
        if isinstance(message, Opened) and not message.number:
            message = replace(message, number=self.side.channels[self.id].opens.last_number)
        self.side.receive(message, None, self.out, now)

    def fault(self, error: Exception, entry: Entry | None = None) -> Fault:
        return Fault.of(error, self.id, entry.id if entry else None)  # type: ignore[arg-type]

    def delivered(self, kind: type) -> list:
        return [event for event in self.out.deliver if isinstance(event, kind)]
