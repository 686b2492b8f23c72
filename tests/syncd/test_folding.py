"""A conversation whose fold pauses is here for nobody, and the outcome is the same."""

from collections.abc import Iterable

import pytest

from replica.conversation import Conversation
from replica.ids import ConversationId
from replica.link.messages import Entries, Hello, Open
from replica.log import meter
from replica.log.entry import Entry
from replica.order.tail import frontier
from replica.refusals import ConversationUnknown
from syncd.hub import Hub
from syncd.listing import item_of, list_of
from syncd.policy import Policy
from tests.support.scene import HUB_KEY
from tests.support.stories import Story
from tests.support.writers import Writer

STRANGER = Writer(77)


class Paused:
    """A hub whose folds pause at every entry; each pause looks at the hub as others would."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = tuple(entries)
        self.id = self.entries[0].conversation or ConversationId(self.entries[0].id)
        self.id = ConversationId(self.entries[0].id)
        self.hub, self.pauses = Hub(HUB_KEY, Policy()), 0
        self.hub.shelf.folding.drive(lambda: True, self.look)
        self.link = self.hub.connect(STRANGER.public, 0.0)
        self.hub.receive(self.link, Hello((1,)), 0.0)

    def look(self, held: Conversation) -> None:
        self.pauses += 1
        shelf, creator = self.hub.shelf, self.entries[0].header.author
        assert shelf.get(self.id) is None
        assert shelf.find(self.id) is held
        assert shelf.is_known(self.id)
        assert shelf.known == 1
        assert self.id not in set(list_of(shelf, creator))
        assert item_of(shelf, self.id, creator) is None
        assert not self.hub.needs_load(STRANGER.public, self.id)
        assert shelf.is_stranger(self.id, STRANGER.public)
        if held.log.entries:
            assert self.hub.needs_load(creator, self.id)
        held.log.covered()  # as far as it is judged; nothing is folded by it
        effects = self.hub.receive(self.link, Open(self.id, held.log.cover_digest), 0.0)
        assert [f.message.reason for _, f in effects.send] == [ConversationUnknown.reason]
        assert self.hub.evict(frozenset()) == ()

    def push(self, size: int) -> None:
        for at in range(0, len(self.entries), size):
            part = Entries(self.id, self.entries[at : at + size])
            self.hub.begin_push(self.entries[0].header.author).whole(part, 0.0)


@pytest.fixture
def _each_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "TURN_UNITS", 1)
