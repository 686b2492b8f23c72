"""A replica's core, its disk, and a hub's core, without drivers."""

from collections import deque

from replica.conversation.author import Author
from replica.conversation.conversation import Conversation
from replica.conversation.shelf import MemoryShelf
from replica.core import FollowPolicy, ReplicaCore, ReplicaEffects
from replica.errors import StoreError
from replica.ids import ConversationId, Position
from replica.link.events import Event, StateChanged, SyncState
from replica.link.messages import Fault, Hello, Message
from replica.log.entry import Entry
from syncd.hub import Hub, LinkId
from syncd.links.fan_out import list_more
from syncd.policy import Policy
from tests.support.writers import Writer, said

HUB, OTHER_HUB = Writer(98).public, Writer(99).public
ME, FRIEND = Writer(1), Writer(2)


class Scene:
    """A replica's core, its disk, and a hub's core; messages are delivered until none is left."""

    def __init__(self, hello: Hello | None = None, policy: FollowPolicy | None = None) -> None:
        self.now = 0.0
        self.hub = Hub(HUB, Policy())
        shelf = MemoryShelf()
        self.core = ReplicaCore(
            ME.public, hello or Hello((1,)), shelf, policy=policy, is_own_epoch=lambda _: True
        )
        self.link_id: LinkId | None = None
        self.disk: dict[ConversationId, list[Entry]] = {}
        self.saved: dict[ConversationId, tuple[Position, ...]] = {}
        self.sent: list[Message] = []
        self.delivered: list[Event] = []
        self.loads: list[ConversationId] = []
        self.is_readable = True
        self._to_hub: deque[Message] = deque()

    def do(self, effects: ReplicaEffects) -> ReplicaEffects:
        """Persist, save, send and load, including all resulting effects."""
        for entry in effects.persist:
            self.disk.setdefault(entry.conversation, []).append(entry)
        for conversation, positions in effects.acked:
            self.saved[conversation] = (*self.saved.get(conversation, ()), *positions)
        self.delivered += effects.deliver
        messages = [frame.message for frame in effects.send]
        self.sent += messages
        self._to_hub += messages
        for conversation in effects.load:
            self.load(conversation)
        for conversation in effects.closed:
            if not self.core.listed.is_used(conversation):
                self.do(self.core.forget(conversation))
        while self._to_hub and self.link_id is not None:
            self.perform(self.hub.receive(self.link_id, self._to_hub.popleft(), self.now))
            while self.hub.connected.is_list_due(self.link_id):
                self.perform(list_more(self.hub.connected, self.hub.shelf, self.link_id))
        return effects

    def perform(self, effects) -> None:
        for link_id, frame in effects.send:
            if link_id == self.link_id:
                self.do(self.core.receive(frame.message, self.now))

    def load(self, conversation: ConversationId) -> None:
        self.loads.append(conversation)
        if not self.is_readable:
            self.do(self.core.unreadable(conversation, Fault.of(StoreError()), self.now))
            return
        stored = self.disk.get(conversation)
        held = Conversation.restore(conversation, stored) if stored else None
        acked = self.saved.get(conversation, ())
        self.do(self.core.loaded(conversation, held, acked, self.now))

    def connect(self, hub=HUB) -> None:
        self.link_id = self.hub.connect(ME.public, self.now)
        self.do(self.core.connected(hub, self.now))

    def disconnect(self, fault: Fault | None = None) -> None:
        if self.link_id is not None:
            self.hub.disconnect(self.link_id)
        self.link_id = None
        self._to_hub.clear()
        self.do(self.core.disconnected(self.now, fault))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.do(self.core.handle_deadline(self.now))

    def create(self) -> ConversationId:
        genesis = self.genesis = ME.genesis()
        self.do(self.core.append(genesis, self.now))
        self.core.epochs.begin(genesis.conversation, ME.epoch)
        self.do(self.core.follow(genesis.conversation, self.now, drafts=True))
        return genesis.conversation

    def write(self, conversation: ConversationId, text: str) -> Entry:
        """Write an entry in the core's current epoch."""
        held = self.core.shelf[conversation]
        epoch = self.core.epochs.epoch(held, fresh=1000 + len(held.log))
        newest = max(held.log.entries.values(), key=lambda e: e.order_key)
        entry = Author(ME.key, epoch).write(
            held, said(text), parents=(newest.id,), salt=bytes(16), time_ms=0
        )
        self.do(self.core.append(entry, self.now))
        return entry

    def states(self) -> list[SyncState]:
        return [event.state for event in self.delivered if isinstance(event, StateChanged)]

    def of(self, kind: type) -> list:
        return [message for message in self.sent if isinstance(message, kind)]
