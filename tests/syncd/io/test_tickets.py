"""Streams and the tickets they began with: no stream outlives the last proof of its key."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.v1 import sync_pb2
from replica import limits
from replica.ids import PublicKey
from replica.io.replica import Replica
from replica.link.auth import Doorkeeper
from replica.link.events import Event, LinkClosed, SyncState
from replica.link.messages import Close, Hello, Welcome
from tests.support.callers import Caller, CallersTown, refused, town_in, until

HELLO = Hello((1,))
SHORT_S = 0.9
PROOFS_PER_TICKET = 3


@pytest.fixture
async def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CallersTown]:
    async with town_in(tmp_path) as built:
        monkeypatch.setattr(limits, "TICKET_LIFETIME_S", SHORT_S)
        yield built


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Count what hubs take as proofs of a key."""
    seen: list[bytes] = []
    admit = Doorkeeper.admit

    def counted(self: Doorkeeper, key: PublicKey, *rest: Any) -> bytes:
        seen.append(key)
        return admit(self, key, *rest)

    monkeypatch.setattr(Doorkeeper, "admit", counted)
    return seen


async def test_a_link_whose_key_is_not_proved_again_ends(town: CallersTown):
    link = town.owner.link()
    await link.send(HELLO)
    assert isinstance(await link.read(), Welcome)
    close = await link.read()
    assert isinstance(close, Close)
    assert close.fault is not None
    assert (close.fault.reason, close.fault.retryable) == ("TICKET_INVALID", True)
    assert await link.read() is None
    assert not town.hub.driver.hub.links


async def test_a_watch_ends_likewise(town: CallersTown):
    request = sync_pb2.WatchRequest(conversation=town.id)
    call = town.owner.sync.Watch(request, metadata=town.owner.metadata)
    assert await refused(call) == "TICKET_INVALID"


async def test_a_proof_on_another_connection_prolongs_nothing(town: CallersTown):
    thief = Caller(town.hub.address, town.hub.driver.store, town.writer.key)
    thief.metadata = town.owner.metadata  # of a ticket it has stolen
    link = thief.link()
    await link.send(HELLO)
    assert isinstance(await link.read(), Welcome)
    async with town.owner.calls.renewed():
        assert isinstance(await link.read(), Close)
    await thief.calls.close()


async def test_a_client_stays_linked_through_many_tickets(
    town: CallersTown, tmp_path: Path, proofs: list[bytes]
):
    events: list[Event] = []
    links = town.hub.driver.hub.links
    async with Replica.open(tmp_path / "client.db", town.writer.key, town.hub.address) as client:
        await client.follow(town.id)
        assert await client.wait_synced(town.id)
        client.listen(events.append)
        before = set(links)
        await until(lambda: len(proofs) > 3 * PROOFS_PER_TICKET)
        assert set(links) == before
        assert client.state(town.id) is SyncState.SYNCHRONIZED
        assert not [e for e in events if isinstance(e, LinkClosed)]


async def test_calls_go_on_watching_through_many_tickets(town: CallersTown, proofs: list[bytes]):
    watch = town.owner.calls.watch(town.id, ())
    assert len(await anext(aiter(watch))) == 4
    await until(lambda: len(proofs) > 3 * PROOFS_PER_TICKET)
    await town.say("still here")
    assert await anext(aiter(watch)) == (town.entries[-1],)
    await watch.aclose()
