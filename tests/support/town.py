"""A hub and its clients in one process: real cores, encoded frames, time as a number."""

from collections.abc import Callable

from replica.conversation.conversation import Conversation, Shelf
from replica.ids import ConversationId
from replica.link.codec import decode_frame, encode_frame
from replica.link.effects import Effects
from replica.link.events import Event
from replica.link.exchange import Side
from replica.link.link import Link
from replica.link.messages import Close, Fault, Hello, Message
from replica.log.entry import Entry
from syncd.hub import Hub, HubEffects, LinkId
from syncd.policy import Policy
from tests.support.writers import Writer

HUB_KEY = Writer(99).public


class Citizen:
    """One client: its shelf, its link, and what happened on it."""

    def __init__(self, town: "Town", writer: Writer) -> None:
        """Start without a link."""
        self.town = town
        self.writer = writer
        self.shelf: Shelf = {}
        self.events: list[Event] = []
        self.sent: list[Message] = []
        self.received: list[Message] = []
        self.persisted: list[Entry] = []

    def connect(self, hello: Hello | None = None) -> None:
        """Open a new link to the hub."""
        self.link_id = self.town.hub.connect(self.writer.public, self.town.now)
        self.town.citizens[self.link_id] = self
        self.link = Link(
            Side.CLIENT, key=self.writer.public, peer=None, shelf=self.shelf, now=self.town.now
        )
        self.perform(self.link.start(hello or Hello((1,))))

    def held(self, conversation: ConversationId) -> Conversation:
        """Return what this client holds."""
        return self.shelf[conversation]

    def hold(self, *entries: Entry) -> None:
        """Put entries on the shelf, as if they had been stored before."""
        for entry in entries:
            held = self.shelf.setdefault(entry.conversation, Conversation(entry.conversation))
            held.admit(entry)

    def open(self, conversation: ConversationId, **how: object) -> None:
        """Sync one conversation."""
        self.perform(self.link.open(conversation, self.town.now, **how))  # type: ignore[arg-type]

    def append(self, *entries: Entry) -> None:
        """Append entries of our own."""
        for entry in entries:
            self.perform(self.link.append(entry, self.town.now))

    def send(self, *messages: Message) -> None:
        """Send what a link of ours would not."""
        for message in messages:
            self.town.to_hub.append((self.link_id, message))

    def perform(self, effects: Effects) -> None:
        """Persist, send, deliver."""
        self.persisted += effects.persist
        self.sent += effects.send
        self.send(*effects.send)
        self.events += effects.deliver


class Town:
    """One hub; messages wait in queues until `run` carries them, encoded, to the end."""

    def __init__(self, policy: Policy | None = None) -> None:
        """Open the hub."""
        self.now = 0.0
        self.hub = Hub(HUB_KEY, policy or Policy())
        self.citizens: dict[LinkId, Citizen] = {}
        self.to_hub: list[tuple[LinkId, Message]] = []
        self.to_clients: list[tuple[LinkId, Message]] = []
        self.persisted: list[Entry] = []
        self.closed: list[LinkId] = []
        self.drop: Callable[[Message], bool] = lambda _message: False

    def citizen(self, writer: Writer) -> Citizen:
        """Return a new linked client."""
        found = Citizen(self, writer)
        found.connect()
        return found

    def perform(self, effects: HubEffects) -> None:
        """Persist, then queue what is sent."""
        self.persisted += effects.persist
        self.to_clients += effects.send
        self.closed += effects.closed

    def run(self) -> None:
        """Carry messages until both directions are quiet."""
        while self.to_hub or self.to_clients:
            if self.to_hub:
                link_id, message = self.to_hub.pop(0)
                data = encode_frame(message, "to_hub")
                if not self.drop(message):
                    decoded = decode_frame(data, "to_hub")
                    self.perform(self.hub.receive(link_id, decoded, self.now, len(data)))
                continue
            link_id, message = self.to_clients.pop(0)
            data = encode_frame(message, "to_client")
            if not self.drop(message):
                citizen = self.citizens[link_id]
                citizen.received.append(decode_frame(data, "to_client"))
                citizen.perform(citizen.link.receive(citizen.received[-1], self.now, len(data)))

    def wait(self, seconds: float) -> None:
        """Let time pass for everybody."""
        self.now += seconds
        self.perform(self.hub.handle_deadlines(self.now))
        for citizen in self.citizens.values():
            citizen.perform(citizen.link.handle_deadline(self.now))
        self.run()


def faults_of(citizen: Citizen) -> list[str]:
    """Return the reasons a client was told, in order."""
    found = []
    for message in citizen.received:
        match message:
            case Fault(reason):
                found.append(reason)
            case Close(_, Fault(reason)):
                found.append(reason)
            case _:
                pass
    return found
