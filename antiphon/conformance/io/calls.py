"""A raw client: a key with a ticket, calls and links whose frames the caller chooses.

It keeps no log, heeds no credit and repairs nothing, so that it can send what a
correct client never would. Entries and frames are encoded by the pure core.
"""

import asyncio
import os
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from antiphon.conformance.cases import Violation, wrong
from antiphon.v1 import sync_pb2 as pb
from antiphon.v1.blob_pb2_grpc import BlobServiceStub
from antiphon.v1.sync_pb2_grpc import SyncServiceStub
from replica.ids import PublicKey
from replica.io import CallEnd, now_ms
from replica.link import (
    NO_CERTIFICATE,
    NONCE_BYTES,
    Challenge,
    Close,
    Frame,
    Message,
    Ping,
    Pong,
    decode_frame,
    prove,
)
from replica.log import public_key

PATIENCE_S = 20.0
"""Seconds to wait for an answer that comes at once."""

END_S = 1.0
"""Seconds after which a link that must have ended is asked whether it goes on."""

_PROBE = 2**40
"""The number of the Ping that asks."""

TICKET_METADATA = "antiphon-ticket-bin"
DOMAIN = "antiphon.v1"

_MESSAGE_BYTES = 8 * 1024 * 1024
"""More than any frame may have, so that frames beyond the limit can be sent."""
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.address_http_proxy_enabled_addresses", ""),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.use_local_subchannel_pool", 1),
)

END = grpc.aio.EOF  # type: ignore[attr-defined]  # absent from its stubs
"""Read at the end of a stream."""

_M = TypeVar("_M")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The typed error that a call ended with (spec/10-errors §2)."""

    code: str
    reason: str
    detail: str
    next_step: str
    missing: tuple[bytes, ...]
    is_retryable: bool


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """Return the refusal in a failed call's trailer. Raises Violation where it has none."""
    try:
        return _refusal_of(error)
    except (ValueError, DecodeError) as cause:
        raise Violation(f"{call_of(error)} ended with a malformed status: {cause}") from cause


def call_of(error: grpc.aio.AioRpcError) -> str:
    """Return the method whose call ended, where `noted` it."""
    return next(iter(getattr(error, "__notes__", ())), "a call")


async def noted(name: str, call: Awaitable[_M]) -> _M:
    """Wait for a call; an error that it ends with has the name of its method."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        if not hasattr(error, "__notes__"):  # an ended stream raises one again and again
            error.add_note(name)
        raise


def _refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    rich = rpc_status.from_call(cast(Any, error))  # has the attributes that from_call reads
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    details = rich.details if rich is not None else ()
    named = any(detail.Unpack(info) for detail in details)
    if not named or info.domain != DOMAIN or not info.reason:
        words = f"{error.code().name} {error.details()}"
        wrong(f"{call_of(error)} ended without a typed error: {words}")
    return Refusal(
        error.code().name,
        info.reason,
        error.details() or "",
        info.metadata.get("next_step", ""),
        tuple(bytes.fromhex(one) for one in info.metadata.get("missing", "").split()),
        any(detail.Unpack(retry) for detail in details),
    )


async def refusal(call: Any) -> Refusal:
    """Return the refusal that a call or stream ends with. Raises Violation if it succeeds."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            if hasattr(call, "read"):
                while (response := await call.read()) is not END:
                    del response  # what precedes the refusal is of no interest here
            else:
                await call
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    raise Violation("a call that must be refused succeeded")


@contextmanager
def awaiting(what: str) -> Iterator[None]:
    """Name what a read waited for in vain. Raises Violation."""
    try:
        yield
    except TimeoutError:
        raise Violation(f"no {what} came within {PATIENCE_S:.0f} s") from None


class RawLink:
    """A link whose frames the caller chooses, wrong ones included."""

    def __init__(self, call: Any) -> None:
        """Use a call of the method Link whose messages are bytes."""
        self.call = call
        self._end = CallEnd(call)
        self.reason = ""
        """The reason of the Close that ends the link, once it was read."""

    async def send(self, *messages: Message) -> None:
        """Send messages, in order."""
        for message in messages:
            await self.send_bytes(Frame.of(message, "to_hub").data)

    async def send_bytes(self, data: bytes) -> None:
        """Send one frame as it is; where the stream has ended, the next read says so."""
        if self.call.done():  # a write would replace the hub's status by one of gRPC's own
            return
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async with asyncio.timeout(PATIENCE_S):
                await self.call.write(data)

    async def read_bytes(self, patience_s: float | None = PATIENCE_S) -> bytes | None:
        """Return the next frame; None at the end of the stream. Raises AioRpcError."""
        async with asyncio.timeout(patience_s):
            data = await noted("Link", self._read())
        return None if data is END else bytes(data)

    async def _read(self) -> Any:
        try:
            return await self.call.read()
        except grpc.aio.AioRpcError as error:
            raise await self._end.of_peer(error) from None

    async def read(self, patience_s: float = PATIENCE_S) -> Message | None:
        """Return the next message; None at the end of the stream."""
        data = await self.read_bytes(patience_s)
        message = None if data is None else decode_frame(data, "to_client")
        if isinstance(message, Close) and message.conversation is None and message.fault:
            self.reason = message.fault.reason
        return message

    async def next_of(self, kind: type[_M]) -> _M:
        """Skip to the next message of a kind. Raises Violation at the end of the link."""
        with awaiting(kind.__name__):
            while (message := await self.read()) is not None:
                if isinstance(message, kind):
                    return message
        raise Violation(f"the link ended before any {kind.__name__} {self.reason}")

    async def until_pong(self, nonce: int = 7, sent_bytes: int = 0) -> list[Message]:
        """Send a Ping, and return the messages that come before its Pong, and the Pong."""
        await self.send(Ping(nonce, sent_bytes))
        found: list[Message] = []
        with awaiting("Pong"):
            while (message := await self.read()) is not None:
                found.append(message)
                if isinstance(message, Pong) and message.nonce == nonce:
                    return found
        raise Violation(f"the link ended before the Pong {self.reason}")

    async def ended(self) -> str:
        """Return the reason of an end that must come at once. Raises Violation otherwise."""
        reading = asyncio.create_task(self.end())
        await asyncio.wait({reading}, timeout=END_S)
        if not reading.done():
            await self.send(Ping(_PROBE))
        return await reading

    async def end(self, patience_s: float = PATIENCE_S) -> str:
        """Read to the end; return the reason of the link's Close or status, "" for none."""
        try:
            while (message := await self.read(patience_s)) is not None:
                if isinstance(message, Pong) and message.nonce == _PROBE:
                    wrong("the link goes on")
        except grpc.aio.AioRpcError as error:
            return refusal_of(error).reason
        return self.reason

    def cancel(self) -> None:
        """End the link from this side."""
        self.call.cancel()


class Caller:
    """A key with a ticket, on a connection of its own."""

    def __init__(
        self, address: str, key: Ed25519PrivateKey, channel: "grpc.aio.Channel | None" = None
    ) -> None:
        """Call the hub at `address`, host:port; `enter` gets the ticket."""
        self.key = key
        self.public = public_key(key)
        self.channel = channel or grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        self.sync: Any = SyncServiceStub(self.channel)
        self.blobs: Any = BlobServiceStub(self.channel)
        self.metadata: tuple[tuple[str, bytes], ...] = ()
        self.hub_key = PublicKey(b"")
        self.expire_time_ms = 0

    async def enter(self) -> "Caller":
        """Prove the key, and keep the ticket. Raises AioRpcError, ProofInvalid."""
        nonce = os.urandom(NONCE_BYTES)
        raw = await self.challenge(nonce)
        signature = prove(
            self.key,
            nonce,
            challenge_of(raw),
            expected_server=None,
            certificate_digest=NO_CERTIFICATE,
            now_ms=now_ms(),
        )
        ticket = (await self.answer(nonce, raw, signature)).ticket
        self.metadata = ((TICKET_METADATA, ticket),)
        self.hub_key, self.expire_time_ms = PublicKey(raw.hub_key), raw.expire_time_ms
        return self

    async def challenge(self, nonce: bytes) -> pb.Challenge:
        """Make the first call of Authenticate."""
        request = pb.AuthenticateRequest(client_key=self.public, client_nonce=nonce)
        challenge: pb.Challenge = (await self.authenticate(request)).challenge
        return challenge

    async def answer(
        self, nonce: bytes, challenge: pb.Challenge, signature: bytes
    ) -> pb.AuthenticateResponse:
        """Make the second call of Authenticate."""
        request = pb.AuthenticateRequest(
            client_key=self.public,
            client_nonce=nonce,
            challenge=challenge,
            client_signature=signature,
        )
        return await self.authenticate(request)

    async def authenticate(self, request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
        """Make one call of Authenticate."""
        call = self.sync.Authenticate(request, timeout=PATIENCE_S)
        response: pb.AuthenticateResponse = await noted("Authenticate", call)
        return response

    async def call(self, name: str, request: Any) -> Any:
        """Call a unary method of SyncService or BlobService with the ticket."""
        service = self.sync if hasattr(self.sync, name) else self.blobs
        call = getattr(service, name)(request, metadata=self.metadata, timeout=PATIENCE_S)
        return await noted(name, call)

    def link(self) -> RawLink:
        """Begin a Link."""
        method: Any = self.channel.stream_stream("/antiphon.v1.SyncService/Link", None, None)
        return RawLink(method(metadata=self.metadata))

    async def close(self) -> None:
        """End the connection."""
        await self.channel.close(None)


def challenge_of(raw: pb.Challenge) -> Challenge:
    """Return a challenge as the pure core has it."""
    return Challenge(
        PublicKey(raw.hub_key),
        raw.hub_nonce,
        raw.certificate_digest or NO_CERTIFICATE,
        raw.expire_time_ms,
        raw.hub_signature,
    )
