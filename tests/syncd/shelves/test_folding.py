"""A conversation whose fold pauses is here for nobody, and the outcome is the same."""

import pytest

from replica.conversation.conversation import Conversation
from replica.ids import ConversationId, Digest
from replica.link.messages import Entries, Fault, Hello, Open
from replica.log import meter
from replica.log.entry import Entry
from replica.order.tail import frontier
from replica.refusals import ConversationUnknown
from syncd.hub import Hub
from syncd.links.listing import item_of, list_of
from syncd.policy import Policy
from tests.support.scene import HUB_KEY
from tests.support.stories import Story
from tests.support.writers import Writer

STRANGER = Writer(77)


class Hubs:
    """A hub whose folds pause at every entry, and one whose folds do not."""

    def __init__(self, conversation: ConversationId) -> None:
        self.id, self.pauses = conversation, 0
        self.hub, self.other = (Hub(HUB_KEY, Policy()) for _ in range(2))
        self.hub.shelf.folding.drive(lambda: True, self.look)
        self.link = self.hub.connect(STRANGER.public, 0.0)
        self.hub.receive(self.link, Hello((1,)), 0.0)

    def look(self, held: Conversation) -> None:
        """Look at the hub as others do in a pause."""
        self.pauses += 1
        hub, shelf = self.hub, self.hub.shelf
        assert shelf.get(self.id) is None
        assert shelf.find(self.id) is held
        assert shelf.is_known(self.id)
        assert shelf.known == 1
        assert not hub.needs_load(STRANGER.public, self.id)
        assert shelf.is_stranger(self.id, STRANGER.public)
        effects = hub.receive(self.link, Open(self.id, Digest(bytes(32))), 0.0)
        (fault,) = (frame.message for _, frame in effects.send)
        assert isinstance(fault, Fault)
        assert fault.reason == ConversationUnknown.reason
        assert hub.evict(frozenset()) == ()
        held.log.covered()  # as far as it is judged: nothing is folded by it
        for key in held.log.admission.granted:
            assert hub.needs_load(key, self.id)
            assert self.id not in set(list_of(shelf, key))
            assert item_of(shelf, self.id, key) is None

    def begin(self, owner: Writer, entries: list[Entry]) -> None:
        """Begin the conversation at both, by a link of its owner."""
        self.other.connect(STRANGER.public, 0.0)  # as many links as the other
        for hub in (self.hub, self.other):
            self.owned = hub.connect(owner.public, 0.0)
            hub.receive(self.owned, Hello((1,)), 0.0)
        self.receive(entries)

    def receive(self, entries: list[Entry]) -> None:
        """Receive entries at both; the effects are the same."""
        message = Entries(self.id, tuple(entries))
        paused = self.hub.receive(self.owned, message, 0.0)
        plain = self.other.receive(self.owned, message, 0.0)
        assert paused == plain


@pytest.fixture
def _each_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "TURN_UNITS", 1)


@pytest.mark.usefixtures("_each_entry")
@pytest.mark.parametrize("seed", range(12))
def test_pauses_change_nothing(seed: int) -> None:
    story = Story(seed)
    story.grow(60)
    first, rest = story.entries[:8], story.entries[8:]
    story.random.shuffle(rest)  # so that many wait for others
    hubs = Hubs(story.held.id)
    hubs.begin(story.owners[0], first)
    for at in range(0, len(rest), 9):
        hubs.receive(rest[at : at + 9])
    paused, plain = (hub.shelf[story.held.id] for hub in (hubs.hub, hubs.other))
    assert hubs.pauses > len(story.entries)
    assert paused.log.entries.keys() == plain.log.entries.keys() == story.held.log.entries.keys()
    assert paused.log.digest == plain.log.digest == story.held.log.digest
    assert paused.work == plain.work
    assert paused.order.nodes.keys() == plain.order.nodes.keys()
    assert paused.order.void == plain.order.void
    for tip, other in zip(paused.order.tips(), plain.order.tips(), strict=True):
        assert frontier(paused.order, tip) == frontier(plain.order, other)
