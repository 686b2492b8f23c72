"""The in-memory network itself: what it delivers, loses, counts and ends."""

import pytest

from replica import limits
from replica.link.events import EntriesAdmitted, StateChanged, SyncState
from replica.link.link import Phase
from replica.link.messages import Ack, Close, Entries, Fault, Hello, Ping, Pong
from replica.testing import Network, of, shelf_of
from syncd.hub import Hub
from syncd.policy import Policy
from tests.support.scene import HUB_KEY, Scene
from tests.support.writers import Writer, said


@pytest.fixture
def scene() -> Scene:
    return Scene().begin()


def test_a_call_returns_when_all_that_follows_has_been_delivered(scene: Scene) -> None:
    reader = scene.join(Writer(2))
    entry = scene.say()
    assert scene.at_hub(entry)
    assert entry in scene.network.stored
    assert entry in reader.stored
    assert of(EntriesAdmitted, reader.events)[-1].entries == (entry,)
    assert scene.state() is scene.state(reader) is SyncState.SYNCHRONIZED


def test_messages_travel_as_bytes(scene: Scene) -> None:
    reader = scene.join(Writer(2))
    entry = scene.say()
    received = reader.held(scene.id).log.entries[entry.id]
    assert received == entry
    assert received is not entry


def test_what_is_lost_was_sent_and_never_received(scene: Scene) -> None:
    received = len(scene.client.received)
    scene.network.loses = lambda message: isinstance(message, (Entries, Pong))
    entry = scene.say()
    scene.client.send(Ping(1))
    assert of(Entries, scene.client.sent)[-1].entries == (entry,)
    assert not scene.at_hub(entry)
    assert len(scene.client.received) == received


def test_time_stands_still_until_it_is_advanced(scene: Scene) -> None:
    scene.network.loses = lambda message: isinstance(message, Ack)
    scene.say()
    assert scene.client.link.channels[scene.id].unacked
    scene.network.advance(limits.RESYNC_S)
    assert not scene.client.link.channels[scene.id].unacked
    assert scene.network.now == limits.RESYNC_S


def test_what_is_due_at_once_is_done_at_once() -> None:
    scene = Scene()
    scene.begin()  # the hub does not know it; the client's re-check is due in the same moment
    assert scene.network.now == 0.0
    assert scene.state() is SyncState.SYNCHRONIZED


def test_a_client_that_falls_silent_is_told_nothing_and_tells_nothing(scene: Scene) -> None:
    reader = scene.join(Writer(2))
    scene.network.silence(reader)
    received = len(reader.received)
    scene.say()
    reader.send(Ping(1))
    assert len(reader.received) == received
    assert reader.link_id in scene.hub.links
    assert reader.link.phase is Phase.READY


def test_of_a_disconnection_both_sides_learn(scene: Scene) -> None:
    scene.network.disconnect(scene.client)
    assert scene.client.link.phase is Phase.CLOSED
    assert not scene.hub.links


def test_a_link_the_hub_ends_is_ended_on_both_sides(scene: Scene) -> None:
    scene.client.send(Ping(1, 2**64 - 1))  # no client was ever allowed so many bytes
    assert scene.network.closed == [scene.client.link_id]
    assert scene.client.link.phase is Phase.CLOSED
    assert not scene.hub.links


def test_a_shelf_outlives_its_link(scene: Scene) -> None:
    scene.network.disconnect(scene.client)
    again = scene.network.connect(scene.writer.public, shelf=scene.client.shelf)
    again.open(scene.id)
    assert not of(Entries, again.received)
    assert again.state(scene.id) is SyncState.SYNCHRONIZED


def test_a_shelf_is_made_of_entries_of_any_conversations_in_any_order() -> None:
    lines = []
    for number in (1, 2):
        writer = Writer(number)
        genesis = writer.genesis()
        message = writer.write(genesis.conversation, said("x"), parents=[genesis])
        lines.append((message, genesis))
    shelf = shelf_of(*lines[0], *lines[1])
    assert {c: set(held.log.entries) for c, held in shelf.items()} == {
        genesis.conversation: {genesis.id, message.id} for message, genesis in lines
    }


def test_the_faults_of_a_client_are_those_it_was_told_alone_or_with_a_close(scene: Scene) -> None:
    stranger = scene.network.connect(Writer(9).public)
    stranger.open(scene.id)
    stranger.send(Ping(1, 2**64 - 1))
    assert stranger.faults == ["CONVERSATION_NOT_FOUND", "CREDIT_EXCEEDED"]
    assert [type(m) for m in stranger.received[-2:]] == [Fault, Close]


def test_what_a_client_is_handed_is_taken_as_from_the_hub(scene: Scene) -> None:
    sent = len(scene.client.sent)
    scene.client.receive(Close(scene.id))
    assert len(scene.client.sent) == sent
    assert scene.client.events[-1] == StateChanged(scene.id, SyncState.OFFLINE)


def test_a_client_may_greet_in_its_own_words() -> None:
    network = Network(Hub(HUB_KEY, Policy()))
    hello = Hello((1,), follow=False)
    client = network.connect(Writer(1).public, hello=hello)
    assert client.sent == [hello]
    assert not network.hub.links[client.link_id].follows
