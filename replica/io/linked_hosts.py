"""The model hosts linked to a hub, asked without a store of one's own (spec/04-link §4)."""

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.v1 import sync_pb2 as pb
from antiphon.v1.sync_pb2_grpc import SyncServiceStub
from replica.conversation import is_loopback
from replica.ids import PublicKey
from replica.io import rpc
from replica.io.hub_channel import open_channel
from replica.io.short_link import Call, cut_short, send, short_link
from replica.io.tls_refusals import HubKeyUnknown
from replica.limits import VERSION
from replica.link import Hello, LinkedHost, Welcome, decode_frame

_WANTED = "a Welcome"


async def linked_hosts(
    address: str, key: Ed25519PrivateKey, hub_key: PublicKey | None
) -> tuple[LinkedHost, ...]:
    """Return the hosts that the Welcome of the hub at `address` names, vouched ones first.

    A link is opened for the answer and ended; `hub_key` is the key the hub must prove, None
    for any, on loopback alone. Raises HubUnreachable, HubKeyUnknown, PeerIdentityChanged and
    the hub's refusal.
    """
    if hub_key is None and not is_loopback(address):
        raise HubKeyUnknown(f"no key is pinned for the hub at {address}")
    channel = await open_channel(address)
    async with channel.grpc:
        stub: Any = SyncServiceStub(channel.grpc)

        async def authenticate(request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
            response: pb.AuthenticateResponse = await rpc.typed(
                stub.Authenticate(request, timeout=rpc.CALL_TIMEOUT_S)
            )
            return response

        _, ticket = await rpc.obtain_ticket(authenticate, key, hub_key, channel.certificate_digest)
        async with short_link(channel.grpc, ticket, _WANTED) as call:
            return await _hosts(call)


async def _hosts(call: Call) -> tuple[LinkedHost, ...]:
    await send(call, Hello((VERSION,)))
    async for data in call:
        message = decode_frame(data, "to_client")
        if isinstance(message, Welcome):
            return message.hosts
    raise cut_short(_WANTED)
