"""A conversation at a hub, with all its members on one in-memory network."""

from collections.abc import Iterable

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, PublicKey, Track
from replica.link.events import SyncState
from replica.link.messages import Entries
from replica.log.body import Grant, Member, Revocation, Role
from replica.log.entry import Entry
from replica.testing import Network, Peer, shelf_of
from syncd.hub import Hub
from syncd.policy import Policy
from syncd.shelves.shelf import Known
from tests.support.writers import Writer, said

HUB_KEY = Writer(99).public


def index(
    hub: Hub, conversation: ConversationId, entries: Iterable[Entry], size_bytes: int = 0
) -> None:
    """Index a stored conversation at a hub that starts and has no record of it."""
    held = Conversation.restore(conversation, entries)
    hub.index(conversation, Known.of(held), held.creator, size_bytes)


class Scene:
    """An owner with a conversation, its hub, and the link between them."""

    def __init__(self, policy: Policy | None = None) -> None:
        """Link the owner; `begin` brings its conversation to the hub."""
        self.writer = Writer(1)
        self.hub = Hub(HUB_KEY, policy or Policy())
        self.network = Network(self.hub)
        self.client = self.network.connect(self.writer.public)
        self.genesis = self.writer.genesis()
        self.id = ConversationId(self.genesis.id)

    def begin(self) -> "Scene":
        """Let the owner bring the conversation to the hub."""
        self.client.append(self.genesis)
        self.client.open(self.id)
        return self

    # --- members --------------------------------------------------------------

    def grant(self, key: PublicKey, role: Role = Role.WRITER) -> Entry:
        """Write a grant; the owner has still to append it."""
        return self._member(Grant(key, role))

    def revoke(self, key: PublicKey) -> Entry:
        """Write a revocation; the owner has still to append it."""
        return self._member(Revocation(key))

    def _member(self, change: Grant | Revocation) -> Entry:
        last = self.writer.last(self.id, Track.MEMBERSHIP) or self.genesis
        return self.writer.write(self.id, Member(change), parents=[last])

    def join(self, writer: Writer, role: Role = Role.WRITER) -> Peer:
        """Grant a role to a key, link it, and open the conversation on its link."""
        self.client.append(self.grant(writer.public, role))
        peer = self.network.connect(writer.public)
        peer.open(self.id)
        return peer

    # --- messages -------------------------------------------------------------

    def chain(self, count: int) -> list[Entry]:
        """Write a chain of the owner's messages after its last; append none of them."""
        last, line = self.writer.last(self.id) or self.genesis, []
        for number in range(count):
            last = self.writer.write(self.id, said(str(number)), parents=[last])
            line.append(last)
        return line

    def say(self, text: str = "hello") -> Entry:
        """Let the owner append a message that follows its last."""
        last = self.writer.last(self.id) or self.genesis
        entry = self.writer.write(self.id, said(text), parents=[last])
        self.client.append(entry)
        return entry

    def give(self, *entries: Entry) -> None:
        """Admit entries at the hub without the owner's link."""
        effects, outcomes = self.hub.begin_push(self.writer.public).whole(
            Entries(self.id, entries), 0.0
        )
        assert not any(outcomes.values())
        self.network.perform(effects)

    # --- views ----------------------------------------------------------------

    @property
    def held(self) -> Conversation:
        """The hub's conversation."""
        return self.hub.shelf[self.id]

    def at_hub(self, entry: Entry) -> bool:
        """Say whether the hub holds an entry."""
        return entry.id in self.held.log.entries

    def state(self, peer: Peer | None = None) -> SyncState:
        """Return the sync state of the conversation at a client, by default the owner."""
        return (peer or self.client).state(self.id)

    def reconnect(self, *entries: Entry) -> Peer:
        """Link the owner again, with these entries stored and no others."""
        self.network.disconnect(self.client)
        self.client = self.network.connect(self.writer.public, shelf=shelf_of(*entries))
        return self.client
