"""Comparisons that the application of a client asks for, and the answers of a hub."""

import pytest

from replica.ids import Digest
from replica.link.events import Compared, SyncState
from replica.link.messages import Ack, Entries, Open, Opened
from tests.support.client_scene import Scene as Client
from tests.support.hub_scene import Scene as Hub
from tests.support.writers import said

OTHER = Digest(b"?" * 32)


@pytest.fixture
def client() -> Client:
    """A client that is synchronized."""
    client = Client()
    channel = client.channel(client.genesis, client.line[-1])
    channel.state, channel.is_open = SyncState.SYNCHRONIZED, True
    return client


@pytest.fixture
def hub() -> Hub:
    """A hub whose conversation is open on the link."""
    hub = Hub()
    hub.receive(Open(hub.id, hub.held.log.digest))
    return hub


def asked(client: Client) -> Open:
    return Open(client.id, client.held.log.digest, None, drafts=True)


def equal(client: Client) -> Opened:
    return Opened(client.id, client.held.log.digest, True)


def test_a_comparison_begins_at_once_and_its_answer_is_told(client: Client) -> None:
    channel = client.side.channels[client.id]
    client.side.compare(channel, client.out, 4.0)
    assert client.sent == [asked(client)]
    assert not client.delivered(Compared)
    client.receive(equal(client), 4.5)
    assert client.delivered(Compared) == [Compared(client.id, 4.0)]
    assert len(client.sent) == 1


def test_a_comparison_begins_behind_the_answer_to_an_earlier_one(client: Client) -> None:
    channel, opened = client.side.channels[client.id], equal(client)
    client.side.compare(channel, client.out, 4.0)
    client.side.compare(channel, client.out, 4.1)
    client.side.verify([channel], client.out, 4.2)  # a heartbeat
    assert len(client.sent) == 1
    client.receive(opened, 4.5)
    assert len(client.sent) == 2
    client.receive(opened, 4.6)
    assert client.delivered(Compared) == [Compared(client.id, 4.0), Compared(client.id, 4.5)]


def test_a_comparison_begins_behind_the_acks_of_what_was_written_before(client: Client) -> None:
    channel = client.side.channels[client.id]
    entry = client.ada.write(client.id, said("more"), parents=client.line[-1:])
    client.side.append(entry, client.out, 4.0)
    channel.sent.add(entry.id)
    client.side.compare(channel, client.out, 4.0)
    assert not client.sent
    client.receive(Ack(client.id, (entry.id,)), 4.5)
    assert client.sent == [asked(client)]


def test_an_answer_that_leads_to_another_open_is_not_told(client: Client) -> None:
    channel = client.side.channels[client.id]
    client.side.compare(channel, client.out, 4.0)
    client.receive(Opened(client.id, OTHER, False), 4.5)
    assert isinstance(client.sent[-1], Open) and client.sent[-1].heads
    assert channel.state is SyncState.DESYNCHRONIZED
    assert not client.delivered(Compared)
    client.receive(equal(client), 4.6)
    assert client.delivered(Compared) == [Compared(client.id, 4.5)]


def test_a_digest_is_answered_behind_the_entries_that_are_being_sent(hub: Hub) -> None:
    digest = hub.held.log.digest
    hub.held.admit(hub.ada.write(hub.id, said("new"), parents=hub.line[-1:]))
    (new,) = hub.held.log.entries.keys() - {entry.id for entry in hub.line}
    hub.side.offer(hub.id, [new], 0.0)
    assert hub.receive(Open(hub.id, digest)) == []
    assert hub.pumped(limit=0) == []  # no credit
    entries, opened = hub.pumped()
    assert isinstance(entries, Entries) and [e.id for e in entries.entries] == [new]
    assert opened == Opened(hub.id, hub.held.log.digest, False)
    assert hub.pumped() == []
    assert hub.receive(Open(hub.id, digest)) == [opened]


@pytest.mark.parametrize("heads", [None, ()])
def test_each_open_has_an_answer_where_another_follows_a_late_one(hub: Hub, heads) -> None:
    hub.side.offer(hub.id, [hub.line[-1].id], 0.0)
    opened = Opened(hub.id, hub.held.log.digest, False)
    assert hub.receive(Open(hub.id, OTHER)) == []
    answers = hub.receive(Open(hub.id, OTHER, heads))
    answers += [m for m in hub.pumped() if isinstance(m, Opened)]
    with_heads = Opened(hub.id, hub.held.log.digest, False, hub.held.log.heads())
    assert answers == [opened, opened if heads is None else with_heads]
    assert not hub.side.channels[hub.id].is_answer_due
