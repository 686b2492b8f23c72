"""No call and no link begins with a ticket that is missing, foreign or expired."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.v1 import blob_pb2, sync_pb2
from replica.io import rpc
from replica.io.files.keys import load_or_create, load_or_create_secret
from replica.limits import TICKET_LIFETIME_S
from replica.link.auth import Authenticator, prove
from replica.link.messages import Opened
from replica.refusals import Unauthenticated
from tests.support.callers import Caller, ServedHub, serve_hub
from tests.support.hub_views import next_of, open_link, refusal, stored

LIFETIME_MS = int(TICKET_LIFETIME_S * 1000)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedHub]:
    async with serve_hub(tmp_path) as built:
        yield built


@pytest.fixture
def authenticator(served: ServedHub, tmp_path: Path) -> Authenticator:
    """The hub's own authenticator: its key and its secret."""
    key = load_or_create(tmp_path / "hub" / "identity.key")
    return Authenticator(key, load_or_create_secret(tmp_path / "hub" / "ticket.secret"))


def issued(authenticator: Authenticator, served: ServedHub, age_ms: int) -> bytes:
    """Return the ticket that `authenticator` gave the owner so long ago."""
    nonce, key, then = bytes(32), served.writer.public, rpc.now_ms() - age_ms
    challenge = authenticator.challenge(key, nonce, then)
    proof = prove(served.writer.key, nonce, challenge, expected_server=None, now_ms=then)
    return authenticator.admit(key, nonce, challenge.expire_time_ms, proof, then)


def every_call(served: ServedHub, caller: Caller) -> list[Any]:
    """Begin each call of the hub that needs a ticket, and a link."""
    sync, blobs = caller.sync, caller.blobs
    entry, digest = served.entries[1].id, bytes(32)
    calls: list[tuple[Callable[..., Any], Any]] = [
        (sync.Push, sync_pb2.PushRequest(conversation=served.id)),
        (sync.Resolve, sync_pb2.ResolveRequest(conversation=served.id, id=entry)),
        (sync.Fetch, sync_pb2.FetchRequest(conversation=served.id, ids=[entry])),
        (sync.Watch, sync_pb2.WatchRequest(conversation=served.id)),
        (sync.Delete, sync_pb2.DeleteRequest(conversation=served.id)),
        (blobs.Stat, blob_pb2.StatRequest(conversation=served.id, digest=digest)),
        (blobs.Read, blob_pb2.ReadRequest(conversation=served.id, digest=digest)),
        (blobs.Write, iter([blob_pb2.WriteRequest(conversation=served.id, digest=digest)])),
    ]
    begun = [call(request, metadata=caller.metadata) for call, request in calls]
    return [*begun, caller.link().call]


async def assert_nothing_is_served(served: ServedHub, *metadata: tuple[str, bytes]) -> None:
    served.owner.metadata = metadata
    for call in every_call(served, served.owner):
        assert await refusal(call) == (Unauthenticated.reason, Unauthenticated.next_step)
    assert await stored(served) == served.entries


async def test_a_ticket_serves_calls_and_links_until_it_expires(
    served: ServedHub, authenticator: Authenticator
):
    nearly = issued(authenticator, served, LIFETIME_MS - 60_000)
    served.owner.metadata = ((rpc.TICKET_METADATA, nearly),)
    request = sync_pb2.ResolveRequest(conversation=served.id, id=served.entries[1].id)
    answer = await served.owner.sync.Resolve(request, metadata=served.owner.metadata)
    assert answer.fate == sync_pb2.FATE_DURABLE
    link = await open_link(served.owner, served.id)
    assert (await next_of(link, Opened)).conversation == served.id
    await assert_nothing_is_served(
        served, (rpc.TICKET_METADATA, issued(authenticator, served, LIFETIME_MS))
    )


async def test_a_missing_torn_or_foreign_ticket_is_refused(
    served: ServedHub, authenticator: Authenticator
):
    foreign = Authenticator(Ed25519PrivateKey.generate(), b"another secret")
    await assert_nothing_is_served(served)
    for ticket in (b"", issued(authenticator, served, 0)[:-1], issued(foreign, served, 0)):
        await assert_nothing_is_served(served, (rpc.TICKET_METADATA, ticket))


async def test_nothing_is_lost_by_an_expired_ticket(
    served: ServedHub, authenticator: Authenticator
):
    # As after a night without messages.
    expired = served.owner.calls._ticket = issued(authenticator, served, LIFETIME_MS)
    await served.say("good morning")
    assert await stored(served) == served.entries
    assert served.owner.calls._ticket != expired
    served.owner.calls._ticket = expired
    (fetched,) = await served.owner.calls.fetch(served.id, [served.entries[-1].id])
    assert fetched == served.entries[-1]
    assert served.owner.calls._ticket != expired
