"""A writer, its conversation and its hub, ready for tests of one link."""

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, PublicKey
from replica.link.events import SyncState
from replica.link.messages import Entries
from replica.log.body import Grant, Member, Role
from replica.log.entry import Entry
from replica.testing import Pair, Peer
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.writers import Writer, said

HUB_KEY = PublicKey(b"h" * 32)


def of(kind: type, messages: list) -> list:
    return [message for message in messages if isinstance(message, kind)]


class Scene:
    """A writer with a conversation, its hub, and a pair between them."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.writer = Writer(1)
        self.hub = Hub(HUB_KEY, policy or Policy())
        self.pair = Pair(self.hub, self.writer.public)
        self.client = self.pair.client
        self.genesis = self.writer.genesis()
        self.id = ConversationId(self.genesis.id)

    def begin(self) -> "Scene":
        self.client.append(self.genesis)
        self.client.open(self.id)
        return self

    def chain(self, count: int, writer: Writer | None = None) -> list[Entry]:
        """Write a line of messages, each following the one before."""
        writer = writer or self.writer
        last = self.writer.last(self.id) or self.genesis
        entries = []
        for number in range(count):
            last = writer.write(self.id, said(str(number)), parents=[last])
            entries.append(last)
        return entries

    @property
    def held(self) -> Conversation:
        return self.hub.shelf[self.id]

    def give(self, *entries: Entry) -> None:
        """Let the hub hold entries without this link."""
        effects, outcomes = self.hub.push(self.writer.public, Entries(self.id, entries), 0.0)
        assert not any(outcomes.values())
        self.pair.perform(effects)

    def shelf_of(self, *entries: Entry) -> dict:
        return {self.id: Conversation.restore(self.id, entries)}

    def reconnect(self, *entries: Entry) -> Peer:
        """Link again with a shelf of these entries."""
        self.pair.disconnect(self.client)
        self.client = self.pair.connect(self.writer.public, shelf=self.shelf_of(*entries))
        return self.client

    def state(self, peer: Peer | None = None) -> SyncState:
        return (peer or self.client).link.exchange.channels[self.id].state


def grant(scene: Scene, key: PublicKey, role: Role = Role.WRITER) -> Entry:
    last = scene.writer.last(scene.id, 3) or scene.genesis
    return scene.writer.write(scene.id, Member(Grant(key, role)), parents=[last])
