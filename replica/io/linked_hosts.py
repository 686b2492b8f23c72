"""The model hosts linked to a hub, asked without a store of one's own (spec/04-link §4)."""

import asyncio
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.v1 import sync_pb2 as pb
from antiphon.v1.sync_pb2_grpc import SyncServiceStub
from replica.ids import PublicKey
from replica.io import rpc, status
from replica.io.grpc_server import is_loopback
from replica.io.hub_channel import open_channel
from replica.io.tls_refusals import HubKeyUnknown
from replica.limits import VERSION
from replica.link import Frame, Hello, LinkedHost, Welcome, decode_frame
from replica.refusals import HubUnreachable

_Call = grpc.aio.StreamStreamCall[bytes, bytes]


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
        call: _Call = channel.grpc.stream_stream("/antiphon.v1.SyncService/Link")(
            metadata=((rpc.TICKET_METADATA, ticket),)
        )
        try:
            async with asyncio.timeout(rpc.CALL_TIMEOUT_S):
                return await _hosts(call)
        except grpc.aio.AioRpcError as error:
            raise status.from_rpc_error(error) from error
        except TimeoutError as error:
            raise HubUnreachable("no Welcome in time") from error
        finally:
            call.cancel()


async def _hosts(call: _Call) -> tuple[LinkedHost, ...]:
    await call.write(Frame.of(Hello((VERSION,)), "to_hub").data)
    async for data in call:
        message = decode_frame(data, "to_client")
        if isinstance(message, Welcome):
            return message.hosts
    raise HubUnreachable("the link ended before its Welcome")
