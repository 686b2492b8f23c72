"""The unary calls of a model host, with one ticket kept fresh (spec/07-host §6)."""

from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.v1 import host_pb2 as pb
from antiphon.v1 import sync_pb2
from antiphon.v1.host_pb2_grpc import HostServiceStub
from replica.ids import ConversationId, PublicKey
from replica.io import rpc
from replica.io.grpc_server import require_loopback
from replica.refusals import Unauthenticated


class HostCalls:
    """A channel to a model host; use as an async context manager, or close it."""

    def __init__(self, address: str, key: Ed25519PrivateKey, host_key: PublicKey | None) -> None:
        """Connect lazily; `host_key` is the key the host must prove, None for any."""
        require_loopback(address)
        self.address = address
        self._channel: Any = grpc.aio.insecure_channel(address, options=rpc.CHANNEL_OPTIONS)
        self._stub: Any = HostServiceStub(self._channel)
        self._key = key
        self._host_key = host_key
        self._ticket: bytes | None = None

    async def __aenter__(self) -> "HostCalls":
        """Return the calls."""
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close the channel."""
        await self.close()

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def authenticate(self) -> PublicKey:
        """Obtain a fresh ticket; return the host's key. Raises PeerIdentityChanged."""

        async def call(request: sync_pb2.AuthenticateRequest) -> sync_pb2.AuthenticateResponse:
            wrapped = pb.HostServiceAuthenticateRequest(request=request)
            answer = await rpc.typed(self._stub.Authenticate(wrapped, timeout=rpc.CALL_TIMEOUT_S))
            response: sync_pb2.AuthenticateResponse = answer.response
            return response

        host_key, self._ticket = await rpc.obtain_ticket(call, self._key, self._host_key)
        return host_key

    async def _call(self, name: str, request: Any) -> Any:
        for attempt in range(2):
            if self._ticket is None:
                await self.authenticate()
            metadata = ((rpc.TICKET_METADATA, self._ticket or b""),)
            method = getattr(self._stub, name)
            try:
                return await rpc.typed(
                    method(request, metadata=metadata, timeout=rpc.CALL_TIMEOUT_S)
                )
            except Unauthenticated:
                self._ticket = None  # expired, or the host restarted: retry once with a new one
                if attempt:
                    raise
        raise AssertionError("the loop returns or raises")

    async def describe(self) -> pb.DescribeResponse:
        """Return the host's profile and load."""
        response: pb.DescribeResponse = await self._call("Describe", pb.DescribeRequest())
        return response

    async def list_checkpoints(self, conversation: ConversationId) -> list[pb.CheckpointInfo]:
        """Return the durable checkpoints of a conversation, newest first."""
        request = pb.ListCheckpointsRequest(conversation=conversation)
        response = await self._call("ListCheckpoints", request)
        return list(response.checkpoints)
