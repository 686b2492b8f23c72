"""A hub's side of a link with one conversation, for tests of its single steps."""

from dataclasses import dataclass, field

from replica.conversation.conversation import Conversation
from replica.conversation.shelf import MemoryShelf
from replica.ids import PublicKey
from replica.link.effects import EffectsBuilder
from replica.link.hub_side import HubSide
from replica.link.messages import Message
from replica.log.entry import Entry
from tests.support.writers import Writer, said


@dataclass
class Scene:
    """A hub with one conversation of Ada's, and the messages it sends on her link."""

    ada: Writer = field(default_factory=lambda: Writer(1))
    sent: list[Message] = field(default_factory=list)
    shelf: MemoryShelf = field(default_factory=MemoryShelf)

    def __post_init__(self) -> None:
        self.genesis = self.ada.genesis()
        self.id = self.genesis.conversation
        self.line: list[Entry] = [self.genesis]
        for number in range(3):
            self.line.append(self.ada.write(self.id, said(str(number)), parents=self.line[-1:]))
        self.held = Conversation.restore(self.id, self.line)
        self.shelf.add(self.held)
        self.out = EffectsBuilder()
        self.side = HubSide(
            self.shelf,
            send=lambda message, _out: self.sent.append(message),
            may_create=lambda _key: True,
            entries_max=None,
        )

    def receive(self, message: Message, peer: PublicKey | None = None) -> list[Message]:
        """Return the messages sent in answer, with or without credit."""
        self.sent.clear()
        self.side.receive(message, peer or self.ada.public, self.out, 0.0)
        return list(self.sent)

    def pumped(self, peer: PublicKey | None = None, *, limit: int = 1_000) -> list[Message]:
        self.sent.clear()
        may_send = lambda: len(self.sent) < limit  # noqa: E731  # a function of the test
        self.side.pump(peer or self.ada.public, self.out, may_send=may_send)
        return list(self.sent)
