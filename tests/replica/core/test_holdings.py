"""Entries the hub is known to hold: by an open channel, else by earlier acks."""

from replica import limits
from replica.conversation.conversation import Conversation
from replica.core.current_link import CurrentLink
from replica.core.holdings import HubHoldings
from replica.ids import ConversationId
from replica.link.messages import Fault, Hello, Welcome
from replica.refusals import QuotaExceeded
from tests.support.writers import Writer, said

HUB, OTHER_HUB = Writer(98).public, Writer(99).public
ME = Writer(1)
WELCOME = Welcome(1, HUB, limits.FRAME_BYTES_MAX, limits.CREDIT_BYTES, 60_000)
GENESIS = ME.genesis()
ID = ConversationId(GENESIS.id)
ENTRY = ME.write(ID, said("one"), parents=[GENESIS])


class Scene:
    """Two entries in memory, a hub that acked the first one, and a link to begin."""

    def __init__(self) -> None:
        shelf = {ID: Conversation.restore(ID, [GENESIS, ENTRY])}
        self.link = CurrentLink(ME.public, shelf)
        self.holdings = HubHoldings(HUB, self.link, shelf)
        self.holdings.acks.load(ID, [GENESIS.position])

    def begin(self):
        self.link.begin(HUB, Hello((1,)), 0.0)
        self.link.receive(WELCOME, 0.0, 10)
        self.link.open(ID, 0.0, acked=self.holdings.acks.positions(ID), drafts=True)
        return self.link.channel(ID)


def test_without_a_link_the_acks_of_earlier_ones_count() -> None:
    scene = Scene()
    assert scene.holdings.unacked(ID) == {ENTRY.id}
    assert scene.holdings.expects_acks(ID)
    assert not scene.holdings.is_acked(ID, GENESIS.id), "no hub acked it on a current link"


def test_a_conversation_that_is_not_in_memory_has_no_unacked_entries() -> None:
    assert Scene().holdings.unacked(ConversationId(bytes(32))) == set()


def test_a_channel_knows_more_than_the_acks() -> None:
    scene = Scene()
    channel = scene.begin()
    assert scene.holdings.unacked(ID) == {ENTRY.id}
    channel.unacked.clear()
    assert scene.holdings.unacked(ID) == set()
    assert not scene.holdings.expects_acks(ID)


def test_an_entry_is_acked_only_on_an_open_channel() -> None:
    scene = Scene()
    channel = scene.begin()
    assert not scene.holdings.is_acked(ID, GENESIS.id)
    channel.is_open = True
    assert scene.holdings.is_acked(ID, GENESIS.id)
    assert not scene.holdings.is_acked(ID, ENTRY.id)


def test_a_refused_entry_is_unacked_but_no_ack_is_expected() -> None:
    scene = Scene()
    channel = scene.begin()
    channel.refuse(ENTRY.id, Fault.of(QuotaExceeded(), channel.id, ENTRY.id))
    assert scene.holdings.unacked(ID) == {ENTRY.id}
    assert not scene.holdings.expects_acks(ID)


def test_the_acks_of_another_hub_are_forgotten() -> None:
    scene = Scene()
    scene.holdings.use_hub(HUB)
    assert ID in scene.holdings.acks
    scene.holdings.use_hub(OTHER_HUB)
    assert ID not in scene.holdings.acks
    assert scene.holdings.unacked(ID) == {GENESIS.id, ENTRY.id}
