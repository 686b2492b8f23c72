"""The logs of open conversations are bounded together (LIM-14)."""

import pytest

from replica.ids import ConversationId
from replica.link.messages import Entries
from replica.log.body import Grant, Member, Role
from replica.testing import Network, Peer
from syncd.hub import Hub
from syncd.open_logs import release_logs
from syncd.policy import Policy
from tests.support.scene import HUB_KEY
from tests.support.writers import Writer, said

ADA, BOB = Writer(1), Writer(2)
LARGE = "x" * 60_000


class Scene:
    """A small conversation of Ada's and three of Eve's, all open on Bob's link."""

    def __init__(self, bytes_max: int) -> None:
        self.hub = Hub(HUB_KEY, Policy(logs_bytes_max=bytes_max))
        self.network = Network(self.hub)
        self.ada = self.begin(ADA, 1)
        self.eves = [self.begin(Writer(3, epoch=n), n) for n in (2, 4, 3)]
        self.peer: Peer = self.network.connect(BOB.public)
        for one in (self.ada, *self.eves):
            self.peer.open(one)

    def begin(self, writer: Writer, count: int) -> ConversationId:
        genesis = writer.genesis()
        one = genesis.conversation
        grant = writer.write(one, Member(Grant(BOB.public, Role.WRITER)), parents=[genesis])
        words = [writer.write(one, said(LARGE), parents=[genesis]) for _ in range(count)]
        effects, faults = self.hub.begin_push(writer.public).whole(
            Entries(one, (genesis, grant, *words)), 0.0
        )
        assert not any(faults.values())
        self.network.perform(effects)
        return one

    def release(self, busy: frozenset[ConversationId] = frozenset()) -> list[ConversationId]:
        """Evict, then release; return what left memory."""
        before = set(self.hub.shelf)
        self.hub.evict(busy)
        if self.hub.shelf.bytes_over:
            self.network.perform(release_logs(self.hub.connected, self.hub.shelf, busy))
            self.hub.evict(busy)
        return sorted(before - set(self.hub.shelf))


def test_within_the_bound_open_ones_stay() -> None:
    assert Scene(10_000_000).release() == []


def test_the_largest_of_the_heaviest_creator_are_closed_first_with_a_reason() -> None:
    scene = Scene(400_000)
    largest = scene.eves[1]
    assert scene.release() == [largest]
    assert scene.peer.faults == ["LOGS_TOO_LARGE"]
    assert scene.ada in scene.hub.shelf
    assert largest not in scene.peer.link.channels
    assert scene.hub.shelf.bytes_over == 0


def test_one_that_is_being_written_stays() -> None:
    scene = Scene(400_000)
    busy = scene.eves[1]
    assert busy not in scene.release(frozenset({busy}))
    assert scene.release() == [busy]


@pytest.mark.parametrize("bytes_max", [1, 250_000])
def test_a_smaller_creator_loses_its_own_last(bytes_max: int) -> None:
    scene = Scene(bytes_max)
    gone = scene.release()
    assert (scene.ada in gone) == (bytes_max == 1)
    assert set(scene.eves[1:]) <= set(gone)
