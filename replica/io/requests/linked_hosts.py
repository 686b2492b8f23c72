"""The model hosts linked to a hub now: its `Hosts` call, with or without a replica (LINK-83).

The Welcome of a link names those of its moment. A host that links later, leaves or is replaced
is found by a question, which is asked wherever a host is chosen.
"""

import asyncio
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.v1 import sync_pb2 as pb
from antiphon.v1.sync_pb2_grpc import SyncServiceStub
from replica.errors import AntiphonError, ReplicaClosed
from replica.ids import PublicKey
from replica.io.calls import HubCalls, open_channel
from replica.io.driver import Replica
from replica.io.serving import require_known_key, rpc
from replica.link import LinkedHost, linked_host_from_pb

HOSTS_WAIT_S = 2.0
"""Longest wait for the answer of a linked hub; without one, the hosts known before count."""


async def learn_hosts(replica: Replica, timeout_s: float = HOSTS_WAIT_S) -> None:
    """Let `replica.hub.hosts` be the hosts that are linked to the hub now.

    They stay as they are while no hub is linked, and where it does not answer in time or refuses
    the call. Raises ReplicaClosed.
    """
    if not replica.hub.is_linked:
        return
    try:
        async with asyncio.timeout(min(timeout_s, HOSTS_WAIT_S)):
            hosts = await hosts_of(replica.calls())
    except ReplicaClosed:
        raise
    except (AntiphonError, TimeoutError):
        return  # what is wrong with the hub, its link reports
    replica.hub.learn(hosts)


async def hosts_of(calls: HubCalls) -> tuple[LinkedHost, ...]:
    """Return the hosts linked to the hub, those it vouches for first.

    Raises HubUnreachable, ReplicaClosed and the hub's refusal.
    """
    return _hosts_in(await calls.unary(SyncServiceStub, "Hosts", pb.HostsRequest()))


async def linked_hosts(
    address: str, key: Ed25519PrivateKey, hub_key: PublicKey | None
) -> tuple[LinkedHost, ...]:
    """Return what `hosts_of` does, without a replica and on a connection of its own.

    `hub_key` is the key the hub must prove, None for any, on loopback alone. Raises
    HubUnreachable, HubKeyUnknown, PeerIdentityChanged and the hub's refusal.
    """
    require_known_key(hub_key, address)
    channel = await open_channel(address)
    async with channel.grpc:
        stub: Any = SyncServiceStub(channel.grpc)

        async def authenticate(request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
            response: pb.AuthenticateResponse = await rpc.typed(
                stub.Authenticate(request, timeout=rpc.CALL_TIMEOUT_S)
            )
            return response

        _, ticket = await rpc.obtain_ticket(authenticate, key, hub_key, channel.certificate_digest)
        metadata = ((rpc.TICKET_METADATA, ticket),)
        return _hosts_in(
            await rpc.typed(
                stub.Hosts(pb.HostsRequest(), metadata=metadata, timeout=rpc.CALL_TIMEOUT_S)
            )
        )


def _hosts_in(response: pb.HostsResponse) -> tuple[LinkedHost, ...]:
    return tuple(map(linked_host_from_pb, response.hosts))
