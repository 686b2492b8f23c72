"""The calls of a model host, with one ticket kept fresh (spec/07-host §6)."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.v1 import host_pb2 as pb
from antiphon.v1 import sync_pb2
from antiphon.v1.host_pb2_grpc import HostServiceStub
from replica.conversation import NO_ENTRY, Finding, Receipt, ReplayMode, check_reply
from replica.errors import HostError
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.io.calls.call_end import typed_end
from replica.io.calls.host_views import ContextPages, HostSample, pages_from_pb, sample_from_pb
from replica.io.calls.replays import Findings, ReplayEvent, event_from_pb, replay_request
from replica.io.process import Closing, note_grpc
from replica.io.serving import require_loopback, rpc, status
from replica.limits import ARCHIVE_BYTES_MAX
from replica.refusals import HubUnreachable, Unauthenticated

WARM_TIMEOUT_S = 600.0
"""Longest wait for a context to be computed while the host is busy, in seconds."""


class HostUnreachable(HubUnreachable):
    """The model host does not answer."""

    reason = "HOST_UNREACHABLE"
    next_step = "Start the host, `antiphon up` does, or check its address."


class NotAHost(HostUnreachable):
    """The address is not that of a model host."""

    reason = "NOT_A_HOST"
    next_step = "Give a model host's address, or none, and the host is asked that the hub names."
    retryable = False


class ArchiveTooLarge(HostError):
    """The archive has more bytes than a host accepts."""

    reason = "ARCHIVE_TOO_LARGE"
    next_step = "Do nothing: the host computes the context from the log."


class HostCalls(Closing):
    """A channel to a model host; use as an async context manager, or close it."""

    def __init__(self, address: str, key: Ed25519PrivateKey, host_key: PublicKey | None) -> None:
        """Connect lazily; `host_key` is the key the host must prove, None for any."""
        require_loopback(address)
        note_grpc()
        self.address = address
        self._channel: Any = grpc.aio.insecure_channel(address, options=rpc.CHANNEL_OPTIONS)
        self._stub: Any = HostServiceStub(self._channel)
        self._key = key
        self._host_key = host_key
        self._ticket: bytes | None = None

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def authenticate(self) -> PublicKey:
        """Obtain a fresh ticket; return the host's key.

        Raises PeerIdentityChanged, HostUnreachable, NotAHost.
        """

        async def call(request: sync_pb2.AuthenticateRequest) -> sync_pb2.AuthenticateResponse:
            wrapped = pb.HostServiceAuthenticateRequest(request=request)
            with self._reached():
                reply = self._stub.Authenticate(wrapped, timeout=rpc.CALL_TIMEOUT_S)
                answer = await rpc.typed(reply)
            response: sync_pb2.AuthenticateResponse = answer.response
            return response

        host_key, self._ticket = await rpc.obtain_ticket(call, self._key, self._host_key)
        return host_key

    async def _call(self, name: str, request: Any, *, timeout_s: float = rpc.CALL_TIMEOUT_S) -> Any:
        for attempt in range(2):
            if self._ticket is None:
                await self.authenticate()
            method = getattr(self._stub, name)
            try:
                with self._reached():
                    return await rpc.typed(
                        method(request, metadata=self._metadata(), timeout=timeout_s)
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

    async def count_tokens(
        self,
        conversation: ConversationId,
        *,
        text: str = "",
        at: EntryId | None = None,
        profile: Digest | None = None,
    ) -> pb.CountTokensResponse:
        """Return the tokens of a text, and of the context of a seal or behind an entry."""
        request = pb.CountTokensRequest(
            conversation=conversation, profile=profile or b"", text=text, at=at or b""
        )
        response: pb.CountTokensResponse = await self._call("CountTokens", request)
        return response

    async def warm(
        self,
        conversation: ConversationId,
        at: EntryId,
        *,
        profile: Digest | None = None,
        keep_s: int = 0,
        timeout_s: float = WARM_TIMEOUT_S,
    ) -> pb.WarmResponse:
        """Let the host compute a context without an answer; cancelling the call ends that.

        With `keep_s`, at most 3,600, its pages stay in memory for so many seconds.
        """
        request = pb.WarmRequest(
            conversation=conversation, profile=profile or b"", at=at, keep_s=keep_s
        )
        response: pb.WarmResponse = await self._call("Warm", request, timeout_s=timeout_s)
        return response

    async def list_checkpoints(self, conversation: ConversationId) -> list[pb.CheckpointInfo]:
        """Return the durable checkpoints of a conversation, newest first."""
        request = pb.ListCheckpointsRequest(conversation=conversation)
        response = await self._call("ListCheckpoints", request)
        return list(response.checkpoints)

    async def export(self, conversation: ConversationId) -> AsyncIterator[bytes]:
        """Yield the parts of an archive of a conversation's newest checkpoint.

        Raises ArchiveTooLarge, also where a host goes on beyond what any host takes.
        """
        await self.authenticate()
        call = self._stub.Export(
            pb.ExportRequest(conversation=conversation), metadata=self._metadata()
        )
        size = 0
        try:
            async for response in call:
                size += len(response.data)
                if size > ARCHIVE_BYTES_MAX:
                    raise ArchiveTooLarge(f"The host sends more than {ARCHIVE_BYTES_MAX:,} bytes.")
                yield response.data
        except grpc.aio.AioRpcError as error:
            with self._reached():
                raise status.from_rpc_error(error) from error
        finally:
            call.cancel()

    async def replay(
        self, conversation: ConversationId, mode: ReplayMode, from_entry: EntryId | None = None
    ) -> AsyncGenerator[ReplayEvent, None]:
        """Yield the events of a replay, the receipt last.

        Raises ReceiptInvalid, and ReplayBusy's reason and other refusals of the host.
        """
        host = await self.authenticate()  # a stream is not tried twice
        findings = Findings()
        request = replay_request(conversation, mode, from_entry)
        call = self._stub.Replay(request, metadata=self._metadata())
        try:
            async for response in call:
                event = event_from_pb(response)
                match event:
                    case None:
                        continue
                    case Finding():
                        findings.add(event, response.ByteSize())
                    case Receipt():
                        check_reply(
                            event, findings.all, host=host, conversation=conversation, mode=mode,
                            from_entry=from_entry or NO_ENTRY,
                        )  # fmt: skip
                yield event
        except grpc.aio.AioRpcError as error:
            with self._reached():
                raise status.from_rpc_error(error) from error
        finally:
            call.cancel()

    async def import_(self, parts: Iterable[bytes]) -> pb.ImportResponse:
        """Let the host keep the checkpoint of an archive; the first part has its header."""
        await self.authenticate()
        call = self._stub.Import(metadata=self._metadata())
        try:
            with self._reached():
                async with typed_end(call):
                    return await _upload(call, parts)
        finally:
            call.cancel()

    async def stats(self) -> HostSample:
        """Return the host's metrics and the running requests that this key may see."""
        return sample_from_pb(await self._call("Stats", pb.StatsRequest()))

    async def pages(
        self, conversation: ConversationId, seal: EntryId | None = None
    ) -> ContextPages:
        """Return where the context of a branch is; without `seal`, of the newest one."""
        request = pb.PagesRequest(conversation=conversation, seal=seal or b"")
        return pages_from_pb(await self._call("Pages", request))

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Name the host where the call's error names the hub. Raises HostUnreachable, NotAHost."""
        try:
            yield
        except status.NotServed as error:
            if self._ticket is not None:
                raise HostUnreachable("it serves no such call") from error
            raise NotAHost(f"{self.address} is not the address of a model host") from error
        except HubUnreachable as error:
            raise HostUnreachable(error.detail) from error

    def _metadata(self) -> tuple[tuple[str, bytes], ...]:
        return ((rpc.TICKET_METADATA, self._ticket or b""),)


async def _upload(call: Any, parts: Iterable[bytes]) -> pb.ImportResponse:
    is_first = True
    for part in parts:
        await call.write(pb.ImportRequest(data=part))
        if is_first:  # most refusals come before the rest is sent
            await call.read()
        is_first = False
    await call.done_writing()
    done: pb.ImportResponse = await call.read()
    return done
