"""Comparisons that the application of a client asks for, and the answers of a hub."""

import pytest

from replica import limits
from replica.ids import Digest
from replica.link.client_side import BUSY_CHECKS_MAX
from replica.link.events import Compared, SyncState
from replica.link.messages import Ack, Entries, Fault, Open, Opened
from replica.refusals import QuotaExceeded
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


def asked(client: Client, number: int = 1) -> Open:
    return Open(client.id, client.held.log.digest, None, True, number)


def equal(client: Client, number: int) -> Opened:
    return Opened(client.id, client.held.log.digest, True, None, number)


# --- a client --------------------------------------------------------------------------------


def test_a_comparison_begins_at_once_and_its_answer_is_told(client: Client) -> None:
    channel = client.side.channels[client.id]
    client.side.compare(channel, client.out, 4.0)
    assert client.sent == [asked(client)]
    assert not client.delivered(Compared)
    client.receive(equal(client, 1), 4.5)
    assert client.delivered(Compared) == [Compared(client.id, 4.0)]
    assert len(client.sent) == 1


def test_a_comparison_begins_behind_the_answer_to_an_earlier_one(client: Client) -> None:
    channel = client.side.channels[client.id]
    for now in (4.0, 4.1, 4.2):
        client.side.compare(channel, client.out, now)
    assert client.sent == [asked(client)]
    client.receive(equal(client, 1), 4.5)
    assert client.sent == [asked(client), asked(client, 2)]
    client.receive(equal(client, 2), 4.6)
    assert client.delivered(Compared) == [Compared(client.id, 4.0), Compared(client.id, 4.5)]
    assert len(client.sent) == 2


def test_a_late_answer_is_that_to_its_own_open(client: Client) -> None:
    """Those of a slow link are as late as what is sent before them."""
    channel = client.side.channels[client.id]
    client.side.compare(channel, client.out, 4.0)
    client.side.verify([channel], client.out, 12.0)  # a heartbeat
    assert client.sent == [asked(client), asked(client, 2)]
    client.receive(equal(client, 1), 13.0)
    assert client.delivered(Compared) == [Compared(client.id, 4.0)]
    client.receive(equal(client, 1), 13.1)
    client.receive(equal(client, 2), 13.2)
    assert client.delivered(Compared) == [Compared(client.id, 4.0), Compared(client.id, 12.0)]


def test_an_answer_stands_for_the_opens_before_it(client: Client) -> None:
    channel = client.side.channels[client.id]
    client.side.compare(channel, client.out, 4.0)
    client.side.verify([channel], client.out, 12.0)
    for number in (2, 1):
        client.receive(equal(client, number), 13.0)
    assert client.delivered(Compared) == [Compared(client.id, 12.0)]


def test_a_digest_that_differs_is_left_to_the_open_behind_it(client: Client) -> None:
    channel = client.side.channels[client.id]
    client.side.compare(channel, client.out, 4.0)
    client.side.verify([channel], client.out, 12.0)
    client.receive(Opened(client.id, OTHER, False, None, 1), 13.0)
    assert (channel.state, len(client.sent)) == (SyncState.SYNCHRONIZED, 2)
    assert not client.delivered(Compared)


def test_a_lost_answer_is_waited_for_no_longer_than_an_ack(client: Client) -> None:
    channel = client.side.channels[client.id]
    client.side.compare(channel, client.out, 4.0)
    client.side.compare(channel, client.out, 4.0 + limits.RESYNC_S)
    assert client.sent == [asked(client), asked(client, 2)]


def test_an_answer_to_an_open_before_a_close_is_none_to_the_one_behind_it(client: Client) -> None:
    client.side.compare(client.side.channels[client.id], client.out, 4.0)
    del client.side.channels[client.id]
    channel = client.channel(client.genesis, client.line[-1])
    client.side.send_open(channel, client.out, 5.0, with_heads=False)
    client.receive(equal(client, 1), 5.1)
    assert channel.state is SyncState.OPENING
    client.receive(equal(client, 2), 5.2)
    assert client.delivered(Compared) == [Compared(client.id, 5.0)]


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
    client.receive(equal(client, 2), 4.6)
    assert client.delivered(Compared) == [Compared(client.id, 4.5)]


def test_comparisons_that_are_asked_for_bring_no_heads_sooner(client: Client) -> None:
    """LINK-12 counts steps of 5 s: an entry that the hub refused makes each answer differ."""
    channel = client.side.channels[client.id]
    last = client.line[-1].id
    channel.refused[last] = Fault.of(QuotaExceeded(), client.id, last)
    for number in range(1, 4 * BUSY_CHECKS_MAX):
        client.side.compare(channel, client.out, 4.0 + number / 100)
        client.receive(Opened(client.id, OTHER, False, None, number), 4.0 + number / 100)
    assert all(isinstance(one, Open) and one.heads is None for one in client.sent)
    assert (channel.busy_checks, channel.check_at) == (0, 4.01 + limits.RESYNC_S)
    assert len(client.delivered(Compared)) == len(client.sent)


# --- a hub -----------------------------------------------------------------------------------


def test_a_digest_is_answered_behind_the_entries_that_are_being_sent(hub: Hub) -> None:
    digest = hub.held.log.digest
    hub.held.admit(hub.ada.write(hub.id, said("new"), parents=hub.line[-1:]))
    (new,) = hub.held.log.entries.keys() - {entry.id for entry in hub.line}
    hub.side.offer(hub.id, [new], 0.0)
    assert hub.receive(Open(hub.id, digest, number=7)) == []
    assert hub.pumped(limit=0) == []  # no credit
    entries, opened = hub.pumped()
    assert isinstance(entries, Entries) and [e.id for e in entries.entries] == [new]
    assert opened == Opened(hub.id, hub.held.log.digest, False, None, 7)
    assert hub.pumped() == []
    assert hub.receive(Open(hub.id, digest, number=7)) == [opened]


@pytest.mark.parametrize("more", [1, 100])
def test_digests_in_a_row_have_one_answer_behind_the_entries(hub: Hub, more: int) -> None:
    hub.side.offer(hub.id, [hub.line[-1].id], 0.0)
    for number in range(1, more + 2):
        assert hub.receive(Open(hub.id, OTHER, number=number)) == []
    entries, opened = hub.pumped()
    assert isinstance(entries, Entries)
    assert opened == Opened(hub.id, hub.held.log.digest, False, None, more + 1)


def test_heads_are_answered_at_once_and_for_the_digest_before_them(hub: Hub) -> None:
    hub.side.offer(hub.id, [hub.line[-1].id], 0.0)
    assert hub.receive(Open(hub.id, OTHER, number=1)) == []
    log = hub.held.log
    opened = Opened(hub.id, log.digest, False, log.heads(), 2)
    assert hub.receive(Open(hub.id, OTHER, (), number=2)) == [opened]
    assert not any(isinstance(one, Opened) for one in hub.pumped())
