"""The calls of a hub's BlobService (spec/04-link §8)."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from antiphon.v1 import blob_pb2 as pb
from antiphon.v1.blob_pb2_grpc import BlobServiceStub
from replica import limits
from replica.errors import Unavailable
from replica.ids import ConversationId, Digest
from replica.io.blobs import BlobState
from replica.io.calls.call_end import typed_end
from replica.io.calls.hub_calls import HubCalls, Metadata
from replica.io.serving import rpc
from replica.refusals import BlobMissing, BlobOffsetInvalid, HubUnreachable, SlowReader

ReadChunk = Callable[[int], bytes]
"""Return 1 to 262,144 bytes of a blob from an offset; it is called in a thread."""

OFFSET_TRIES = 4
"""Tries of a Write whose offset the hub refuses, since the committed size has changed."""


class BlobCalls:
    """Blobs at a hub, over the channel and with the ticket of its other calls."""

    def __init__(self, calls: HubCalls) -> None:
        """Call the hub of `calls`."""
        self._calls = calls

    @property
    def _stub(self) -> Any:
        return self._calls.stub(BlobServiceStub)

    async def stat(self, conversation: ConversationId, digest: Digest) -> BlobState:
        """Return the state of a blob; an absent one is incomplete with 0 bytes."""
        request = pb.StatRequest(conversation=conversation, digest=digest)

        async def call(metadata: Metadata) -> BlobState:
            timeout = rpc.CALL_TIMEOUT_S
            answer = await rpc.typed(self._stub.Stat(request, metadata=metadata, timeout=timeout))
            return BlobState(answer.complete, answer.committed_bytes, answer.size_bytes)

        return await self._calls.ticketed(call)

    async def write(
        self,
        conversation: ConversationId,
        digest: Digest,
        size: int,
        read: ReadChunk,
        expire_time_ms: int = 0,
    ) -> None:
        """Write a blob from its committed size on; `read` returns its bytes.

        Of one that is complete a later time to expire at is set. Where the hub refuses the
        committed size, since another upload of the blob was open and committed more, or the
        call breaks off, it is asked for again, OFFSET_TRIES times at most. Raises the refusals
        of the hub, of which BlobOffsetInvalid says that others still write this blob, SlowReader
        if the hub takes no data for WRITE_TIMEOUT_S, and HubUnreachable.
        """
        refused: int | None = None
        for tries_left in reversed(range(OFFSET_TRIES)):
            state = await self.stat(conversation, digest)
            offset = state.committed_bytes if state.size_bytes == size else 0
            if offset == refused:  # those bytes are of the blob that is kept in the other way
                offset = 0
            first = pb.WriteRequest(
                conversation=conversation,
                digest=digest,
                size_bytes=size,
                offset=offset,
                expire_time_ms=expire_time_ms,
            )
            try:
                await self._write(first, read)
                break
            except (BlobOffsetInvalid, HubUnreachable):
                if not tries_left:
                    raise
                refused = offset

    async def _write(self, first: pb.WriteRequest, read: ReadChunk) -> None:
        async def call(metadata: Metadata) -> None:
            try:
                async with asyncio.timeout(limits.WRITE_TIMEOUT_S) as patience:
                    requests = _requests(first, read, partial(_extend, patience))
                    writing = self._stub.Write(requests, metadata=metadata)
                    async with typed_end(writing):
                        answer = await writing
            except TimeoutError as error:
                patience_s = limits.WRITE_TIMEOUT_S
                raise SlowReader(f"the hub took no data for {patience_s:.0f} s") from error
            if not answer.complete:
                size = first.size_bytes
                raise Unavailable(f"the hub has {answer.committed_bytes} of {size} bytes")

        await self._calls.ticketed(call)

    async def read(self, conversation: ConversationId, digest: Digest) -> AsyncIterator[bytes]:
        """Yield the bytes of a blob; the last of them only if all have the digest.

        Raises BlobMissing, also for other bytes than those of the digest, and HubUnreachable.
        """
        request = pb.ReadRequest(conversation=conversation, digest=digest)
        hasher, held = hashlib.sha256(), b""
        async with aclosing(self._responses(request)) as responses:
            async for response in responses:
                if held:
                    yield held
                held = response.data
                hasher.update(held)
        if hasher.digest() != digest:
            raise BlobMissing("the hub sent other bytes than those of the digest")
        if held:
            yield held

    async def _responses(self, request: pb.ReadRequest) -> Any:
        """Yield the responses of Read; a ticket refused before the first one is replaced once."""

        async def begin(metadata: Metadata) -> tuple[Any, Any]:
            call = self._stub.Read(request, metadata=metadata)
            return call, await rpc.typed(call.read())

        call, first = await self._calls.ticketed(begin)
        try:
            while first:  # grpc.aio.EOF is false
                yield first
                first = await rpc.typed(call.read())
        finally:
            call.cancel()

    async def remove(self, conversation: ConversationId, digest: Digest) -> int:
        """Delete a blob that expires; return its bytes, 0 if there is none."""
        request = pb.RemoveRequest(conversation=conversation, digest=digest)

        async def call(metadata: Metadata) -> int:
            timeout = rpc.CALL_TIMEOUT_S
            answer = await rpc.typed(self._stub.Remove(request, metadata=metadata, timeout=timeout))
            return int(answer.removed_bytes)

        return await self._calls.ticketed(call)


def _extend(patience: asyncio.Timeout) -> None:
    """Let a call go on for WRITE_TIMEOUT_S from now, unless it has ended."""
    with suppress(RuntimeError):
        patience.reschedule(asyncio.get_running_loop().time() + limits.WRITE_TIMEOUT_S)


async def _requests(
    first: pb.WriteRequest, read: ReadChunk, extend: Callable[[], None]
) -> AsyncIterator[pb.WriteRequest]:
    """Yield the messages of an upload; `extend` its time for each, and for the answer."""
    yield first
    at = first.offset
    while at < first.size_bytes:
        data = await asyncio.to_thread(read, at)
        if not data:
            break  # the hub's answer says that bytes are missing
        extend()
        yield pb.WriteRequest(data=data)
        at += len(data)
    extend()
