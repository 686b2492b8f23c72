"""BlobService over grpc.aio (spec/04-link §8); each call names a conversation of the caller."""

from collections.abc import AsyncIterator, Callable

from antiphon.v1 import blob_pb2 as pb
from replica.ids import ID_BYTES, ConversationId, Digest
from replica.io import next_message, rpc
from replica.refusals import ArgumentInvalid
from syncd.calls import Right
from syncd.io.blob_stores import BlobStores
from syncd.io.driver import HubDriver
from syncd.io.gate import Gate
from syncd.io.requests import conversation_id

_SILENCE = "no data came for too long; the committed bytes stay"


def _digest(value: bytes) -> Digest:
    if len(value) != ID_BYTES:
        raise ArgumentInvalid("digest: 32 bytes")
    return Digest(value)


class BlobService:
    """The calls of BlobService."""

    def __init__(self, driver: HubDriver, gate: Gate, blobs: BlobStores) -> None:
        """Serve `blobs` to the members of the conversations of `driver`'s hub."""
        self._driver = driver
        self._gate = gate
        self._blobs = blobs

    def handlers(self) -> rpc.Handlers:
        """Return the byte-level handlers, by method."""
        refused, counted = self._gate.refuse, self._gate.counted
        return {
            "Stat": rpc.unary(pb.StatRequest, self.stat, refused, counted),
            "Read": rpc.server_stream(pb.ReadRequest, self.read, refused, self._gate.transfer),
            "Write": rpc.client_stream(pb.WriteRequest, self.write, refused),
            "Remove": rpc.unary(pb.RemoveRequest, self.remove, refused, counted),
        }

    async def _permitted(
        self,
        request: pb.StatRequest | pb.ReadRequest | pb.WriteRequest | pb.RemoveRequest,
        context: rpc.Context,
        right: Right,
    ) -> ConversationId:
        """Return the conversation, of which a long call keeps nothing else in memory."""
        peer = self._gate.key_of(context)
        held = await self._driver.permitted(peer, conversation_id(request.conversation), right)
        return held.id

    async def stat(self, request: pb.StatRequest, context: rpc.Context) -> pb.StatResponse:
        """Return the state of a blob."""
        conversation = await self._permitted(request, context, Right.READ)
        state = await self._blobs.stat(conversation, _digest(request.digest))
        return pb.StatResponse(
            complete=state.complete,
            committed_bytes=state.committed_bytes,
            size_bytes=state.size_bytes,
        )

    async def read(
        self, request: pb.ReadRequest, context: rpc.Context
    ) -> AsyncIterator[pb.ReadResponse]:
        """Send a blob from an offset."""
        with self._driver.transfers.count(self._gate.key_of(context)) as check:
            conversation = await self._permitted(request, context, Right.READ)
            async for chunk in self._blobs.read(
                conversation, _digest(request.digest), request.offset
            ):
                check()
                await self._permitted(request, context, Right.READ)  # LINK-16: each is a delivery
                self._driver.counters.bytes_out += len(chunk)
                yield pb.ReadResponse(data=chunk)

    async def write(
        self, requests: AsyncIterator[pb.WriteRequest], context: rpc.Context
    ) -> pb.WriteResponse:
        """Receive a blob from its committed size on; committed bytes stay if the stream breaks."""
        # The ticket first: a silent call of a stranger must not stay.
        with self._driver.transfers.count(self._gate.key_of(context)) as check:
            return await self._write(requests, context, check)

    async def _write(
        self,
        requests: AsyncIterator[pb.WriteRequest],
        context: rpc.Context,
        check: Callable[[], None],
    ) -> pb.WriteResponse:
        first = await next_message(requests, _SILENCE)
        if first is None:
            raise ArgumentInvalid("the first message names the blob")
        conversation = await self._permitted(first, context, Right.WRITE_BLOBS)
        digest = _digest(first.digest)
        expire_ms = first.expire_time_ms
        self._blobs.check_size(first.size_bytes)
        peer = self._gate.key_of(context)
        self._driver.throttle.charge(peer, conversation, uploads=1)
        async with await self._blobs.open_write(
            conversation, digest, first.size_bytes, first.offset, expire_ms
        ) as writer:
            if first.data:
                await writer.write(first.data)
                self._driver.counters.bytes_in += len(first.data)
            while (request := await next_message(requests, _SILENCE)) is not None:
                check()
                await self._permitted(first, context, Right.WRITE_BLOBS)
                await writer.write(request.data)
                self._driver.counters.bytes_in += len(request.data)
        state = writer.state
        if state.complete:
            # It may have been whole before, with an earlier time, and gone by now.
            await self._blobs.finish(conversation, digest, expire_ms)
        return pb.WriteResponse(committed_bytes=state.committed_bytes, complete=state.complete)

    async def remove(self, request: pb.RemoveRequest, context: rpc.Context) -> pb.RemoveResponse:
        """Delete a blob that expires; owners and hosts only."""
        conversation = await self._permitted(request, context, Right.REMOVE_BLOBS)
        removed = await self._blobs.remove(conversation, _digest(request.digest))
        return pb.RemoveResponse(removed_bytes=removed)
