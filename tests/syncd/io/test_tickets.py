"""Streams and tickets: each stream ends with the lifetime of its key's last proof.

The time is passed to the hub, so that no test depends on the speed of the machine.
"""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.v1 import sync_pb2
from replica import limits
from replica.ids import PublicKey
from replica.io.driver.replica import Replica
from replica.limits import TICKET_LIFETIME_S
from replica.link.auth import Authenticator
from replica.link.events import Event, LinkClosed, SyncState
from replica.link.messages import Close, Hello, Ping, Pong, Welcome
from syncd.io import driver as driver_module
from tests.support.callers import Caller, RawLink, ServedHub, refused, serve_hub, until
from tests.support.hub_views import next_of

HELLO = Hello((1,))
TICKETS = 4


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        yield built


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients prove their keys continuously; a running hub keeps its own lifetime."""
    monkeypatch.setattr(limits, "TICKET_LIFETIME_S", 0.03)


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Collect the proofs of keys that hubs accept."""
    seen: list[bytes] = []
    admit = Authenticator.admit

    def counted(self: Authenticator, key: PublicKey, *rest: Any) -> bytes:
        seen.append(key)
        return admit(self, key, *rest)

    monkeypatch.setattr(Authenticator, "admit", counted)
    return seen


def end_lifetime(served: ServedHub, since: float) -> None:
    """Advance the hub's time by a ticket's lifetime since then."""
    served.hub.driver.streams.handle_deadlines(since + TICKET_LIFETIME_S)


async def live_through_tickets(served: ServedHub, proofs: list[bytes]) -> None:
    """Let one lifetime after another pass, each with a proof in it."""
    for _ in range(TICKETS):
        began, before = time.monotonic(), len(proofs)
        await until(lambda before=before: len(proofs) > before)  # type: ignore[misc]
        end_lifetime(served, began)


async def greeted(caller: Caller) -> RawLink:
    link = caller.link()
    await link.send(HELLO)
    assert isinstance(await link.read(), Welcome)
    return link


async def test_a_hub_looks_at_the_lifetimes_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TICKET_LIFETIME_S", 0.0)
    monkeypatch.setattr(driver_module, "TICK_S", 0.001)
    async with serve_hub(tmp_path) as served:
        close = await next_of(served.owner.link(), Close)
    assert close.fault is not None
    assert close.fault.reason == "TICKET_INVALID"


async def test_a_link_whose_key_is_not_proved_again_ends(served: ServedHub):
    link = await greeted(served.owner)
    end_lifetime(served, time.monotonic())
    close = await link.read()
    assert isinstance(close, Close)
    assert close.fault is not None
    assert (close.fault.reason, close.fault.retryable) == ("TICKET_INVALID", True)
    assert await link.read() is None
    assert not served.hub.driver.hub.links


async def test_a_watch_ends_likewise(served: ServedHub):
    request = sync_pb2.WatchRequest(conversation=served.id)
    call = served.owner.sync.Watch(request, metadata=served.owner.metadata)
    assert await call.read()
    end_lifetime(served, time.monotonic())
    assert await refused(call) == "TICKET_INVALID"


async def test_a_proof_extends_the_streams_of_its_connection(served: ServedHub):
    link = await greeted(served.owner)
    began = time.monotonic()
    await served.owner.calls.authenticate()
    end_lifetime(served, began)
    await link.send(Ping(1))
    assert isinstance(await link.read(), Pong)
    end_lifetime(served, time.monotonic())
    assert isinstance(await link.read(), Close)


async def test_a_proof_on_another_connection_extends_nothing(served: ServedHub):
    thief = Caller(served.hub.address, served.hub.driver.store, served.writer.key)
    thief.metadata = served.owner.metadata  # of a ticket it has stolen
    link = await greeted(thief)
    began = time.monotonic()
    await served.owner.calls.authenticate()
    end_lifetime(served, began)
    assert isinstance(await link.read(), Close)
    await thief.calls.close()


async def test_a_client_stays_linked_through_many_tickets(
    served: ServedHub, tmp_path: Path, proofs: list[bytes], eager: None
):
    events: list[Event] = []
    links = served.hub.driver.hub.links
    path = tmp_path / "replica.db"
    async with Replica.open(path, served.writer.key, served.hub.address) as replica:
        await replica.follow(served.id)
        assert await replica.wait_synced(served.id)
        replica.listen(events.append)
        before = set(links)
        await live_through_tickets(served, proofs)
        assert set(links) == before
        assert replica.hub.state(served.id) is SyncState.SYNCHRONIZED
        assert not [e for e in events if isinstance(e, LinkClosed)]


async def test_calls_go_on_watching_through_many_tickets(
    served: ServedHub, proofs: list[bytes], eager: None
):
    watch = served.owner.calls.watch(served.id, ())
    assert len(await anext(aiter(watch))) == 4
    await live_through_tickets(served, proofs)
    await served.say("still here")
    assert await anext(aiter(watch)) == (served.entries[-1],)
    await watch.aclose()
