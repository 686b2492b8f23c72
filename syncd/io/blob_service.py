"""BlobService over grpc.aio (spec/04-link §8); each call names a conversation of the caller."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from antiphon.v1 import blob_pb2 as pb
from replica.conversation import Conversation
from replica.ids import ID_BYTES, Digest
from replica.io import Blobs, rpc
from replica.link import Authenticator
from replica.refusals import ArgumentInvalid
from syncd.io.driver import HubDriver
from syncd.io.requests import conversation_id
from syncd.queries import Right


def _digest(value: bytes) -> Digest:
    if len(value) != ID_BYTES:
        raise ArgumentInvalid("digest: 32 bytes")
    return Digest(value)


class BlobService:
    """The calls of BlobService."""

    def __init__(self, driver: HubDriver, authenticator: Authenticator, blobs: Blobs) -> None:
        """Serve `blobs` to the members of the conversations of `driver`'s hub."""
        self._driver = driver
        self._authenticator = authenticator
        self._blobs = blobs

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """Return the byte-level handlers."""
        return grpc.method_handlers_generic_handler(
            "antiphon.v1.BlobService",
            {
                "Stat": rpc.unary(pb.StatRequest, self.stat),
                "Read": rpc.server_stream(pb.ReadRequest, self.read),
                "Write": rpc.client_stream(pb.WriteRequest, self.write),
            },
        )

    async def _permitted(
        self,
        request: pb.StatRequest | pb.ReadRequest | pb.WriteRequest,
        context: rpc.Context,
        right: Right,
    ) -> Conversation:
        peer = rpc.caller(self._authenticator, context)
        return await self._driver.permitted(peer, conversation_id(request.conversation), right)

    async def stat(self, request: pb.StatRequest, context: rpc.Context) -> pb.StatResponse:
        """Return the state of a blob."""
        held = await self._permitted(request, context, Right.READ)
        state = await self._blobs.stat(held.id, _digest(request.digest))
        return pb.StatResponse(
            complete=state.complete,
            committed_bytes=state.committed_bytes,
            size_bytes=state.size_bytes,
        )

    async def read(
        self, request: pb.ReadRequest, context: rpc.Context
    ) -> AsyncIterator[pb.ReadResponse]:
        """Send a blob from an offset."""
        held = await self._permitted(request, context, Right.READ)
        async for chunk in self._blobs.read(held.id, _digest(request.digest), request.offset):
            yield pb.ReadResponse(data=chunk)

    async def write(
        self, requests: AsyncIterator[pb.WriteRequest], context: rpc.Context
    ) -> pb.WriteResponse:
        """Receive a blob from its committed size on; committed bytes stay if the stream breaks."""
        first = await anext(requests, None)
        if first is None:
            raise ArgumentInvalid("the first message names the blob")
        held = await self._permitted(first, context, Right.WRITE_BLOBS)
        digest = _digest(first.digest)
        async with await self._blobs.open_write(
            held.id, digest, first.size_bytes, first.offset
        ) as writer:
            if first.data:
                await writer.write(first.data)
            async for request in requests:
                await writer.write(request.data)
        state = await self._blobs.stat(held.id, digest)
        return pb.WriteResponse(committed_bytes=state.committed_bytes, complete=state.complete)
