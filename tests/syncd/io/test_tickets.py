"""Streams and the tickets they began with: no stream outlives the last proof of its key."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.v1 import sync_pb2
from replica import limits
from replica.ids import PublicKey
from replica.io.replica import Client
from replica.link.auth import Authenticator
from replica.link.events import Event, LinkClosed, SyncState
from replica.link.messages import Close, Hello, Welcome
from tests.support.callers import Caller, ServedHub, refused, serve_hub, until

HELLO = Hello((1,))
SHORT_S = 0.9
PROOFS_PER_TICKET = 3


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        monkeypatch.setattr(limits, "TICKET_LIFETIME_S", SHORT_S)
        yield built


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Count what hubs take as proofs of a key."""
    seen: list[bytes] = []
    admit = Authenticator.admit

    def counted(self: Authenticator, key: PublicKey, *rest: Any) -> bytes:
        seen.append(key)
        return admit(self, key, *rest)

    monkeypatch.setattr(Authenticator, "admit", counted)
    return seen


async def test_a_link_whose_key_is_not_proved_again_ends(served: ServedHub):
    link = served.owner.link()
    await link.send(HELLO)
    assert isinstance(await link.read(), Welcome)
    close = await link.read()
    assert isinstance(close, Close)
    assert close.fault is not None
    assert (close.fault.reason, close.fault.retryable) == ("TICKET_INVALID", True)
    assert await link.read() is None
    assert not served.hub.driver.hub.links


async def test_a_watch_ends_likewise(served: ServedHub):
    request = sync_pb2.WatchRequest(conversation=served.id)
    call = served.owner.sync.Watch(request, metadata=served.owner.metadata)
    assert await refused(call) == "TICKET_INVALID"


async def test_a_proof_on_another_connection_prolongs_nothing(served: ServedHub):
    thief = Caller(served.hub.address, served.hub.driver.store, served.writer.key)
    thief.metadata = served.owner.metadata  # of a ticket it has stolen
    link = thief.link()
    await link.send(HELLO)
    assert isinstance(await link.read(), Welcome)
    async with served.owner.calls.renewed():
        assert isinstance(await link.read(), Close)
    await thief.calls.close()


async def test_a_client_stays_linked_through_many_tickets(
    served: ServedHub, tmp_path: Path, proofs: list[bytes]
):
    events: list[Event] = []
    links = served.hub.driver.hub.links
    async with Client.open(tmp_path / "client.db", served.writer.key, served.hub.address) as client:
        await client.follow(served.id)
        assert await client.wait_synced(served.id)
        client.listen(events.append)
        before = set(links)
        await until(lambda: len(proofs) > 3 * PROOFS_PER_TICKET)
        assert set(links) == before
        assert client.state(served.id) is SyncState.SYNCHRONIZED
        assert not [e for e in events if isinstance(e, LinkClosed)]


async def test_calls_go_on_watching_through_many_tickets(served: ServedHub, proofs: list[bytes]):
    watch = served.owner.calls.watch(served.id, ())
    assert len(await anext(aiter(watch))) == 4
    await until(lambda: len(proofs) > 3 * PROOFS_PER_TICKET)
    await served.say("still here")
    assert await anext(aiter(watch)) == (served.entries[-1],)
    await watch.aclose()
