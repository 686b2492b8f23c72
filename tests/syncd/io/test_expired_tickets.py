"""No call and no link begins with a ticket that is missing, foreign or expired."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.v1 import blob_pb2, sync_pb2
from replica.io import rpc
from replica.io.keys import load_or_create, load_or_create_secret
from replica.limits import TICKET_LIFETIME_S
from replica.link.auth import Doorkeeper, prove
from replica.link.messages import Opened
from replica.refusals import Unauthenticated
from tests.support.callers import Caller, CallersTown, town_in
from tests.support.town_views import next_of, open_link, refusal, stored

LIFETIME_MS = int(TICKET_LIFETIME_S * 1000)


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[CallersTown]:
    async with town_in(tmp_path) as built:
        yield built


@pytest.fixture
def door(town: CallersTown, tmp_path: Path) -> Doorkeeper:
    """The hub's own doorkeeper: its key and its secret."""
    key = load_or_create(tmp_path / "hub" / "identity.key")
    return Doorkeeper(key, load_or_create_secret(tmp_path / "hub" / "ticket.secret"))


def issued(door: Doorkeeper, town: CallersTown, age_ms: int) -> bytes:
    """Return the ticket that `door` gave the owner so long ago."""
    nonce, key, then = bytes(32), town.writer.public, rpc.now_ms() - age_ms
    challenge = door.challenge(key, nonce, then)
    proof = prove(town.writer.key, nonce, challenge, expected_server=None, now_ms=then)
    return door.admit(key, nonce, challenge.expire_time_ms, proof, then)


def every_call(town: CallersTown, caller: Caller) -> list[Any]:
    """Begin each call of the hub that needs a ticket, and a link."""
    sync, blobs = caller.sync, caller.blobs
    entry, digest = town.entries[1].id, bytes(32)
    calls: list[tuple[Callable[..., Any], Any]] = [
        (sync.Push, sync_pb2.PushRequest(conversation=town.id)),
        (sync.Resolve, sync_pb2.ResolveRequest(conversation=town.id, id=entry)),
        (sync.Fetch, sync_pb2.FetchRequest(conversation=town.id, ids=[entry])),
        (sync.Watch, sync_pb2.WatchRequest(conversation=town.id)),
        (sync.Delete, sync_pb2.DeleteRequest(conversation=town.id)),
        (blobs.Stat, blob_pb2.StatRequest(conversation=town.id, digest=digest)),
        (blobs.Read, blob_pb2.ReadRequest(conversation=town.id, digest=digest)),
        (blobs.Write, iter([blob_pb2.WriteRequest(conversation=town.id, digest=digest)])),
    ]
    begun = [call(request, metadata=caller.metadata) for call, request in calls]
    return [*begun, caller.link().call]


async def assert_nothing_is_served(town: CallersTown, *metadata: tuple[str, bytes]) -> None:
    town.owner.metadata = metadata
    for call in every_call(town, town.owner):
        assert await refusal(call) == (Unauthenticated.reason, Unauthenticated.next_step)
    assert await stored(town) == town.entries


async def test_a_ticket_serves_calls_and_links_until_it_expires(
    town: CallersTown, door: Doorkeeper
):
    nearly = issued(door, town, LIFETIME_MS - 60_000)
    town.owner.metadata = ((rpc.TICKET_METADATA, nearly),)
    request = sync_pb2.ResolveRequest(conversation=town.id, id=town.entries[1].id)
    answer = await town.owner.sync.Resolve(request, metadata=town.owner.metadata)
    assert answer.fate == sync_pb2.FATE_DURABLE
    link = await open_link(town.owner, town.id)
    assert (await next_of(link, Opened)).conversation == town.id
    await assert_nothing_is_served(town, (rpc.TICKET_METADATA, issued(door, town, LIFETIME_MS)))


async def test_a_missing_torn_or_foreign_ticket_serves_nothing(town: CallersTown, door: Doorkeeper):
    foreign = Doorkeeper(Ed25519PrivateKey.generate(), b"another secret")
    await assert_nothing_is_served(town)
    for ticket in (b"", issued(door, town, 0)[:-1], issued(foreign, town, 0)):
        await assert_nothing_is_served(town, (rpc.TICKET_METADATA, ticket))


async def test_nothing_is_lost_by_an_expired_ticket(town: CallersTown, door: Doorkeeper):
    # As after a night in which nothing was said.
    expired = town.owner.calls._ticket = issued(door, town, LIFETIME_MS)
    await town.say("good morning")
    assert await stored(town) == town.entries
    assert town.owner.calls._ticket != expired
