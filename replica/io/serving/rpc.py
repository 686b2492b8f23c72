"""The gRPC parts common to servers and clients: byte-level handlers, options, tickets.

Handlers accept and return bytes, because a deserialiser's exception text would
otherwise reach the peer. The handler parses, and refuses with a typed error.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import Message as PbMessage

from antiphon.v1 import sync_pb2 as pb
from replica import limits
from replica.errors import AntiphonError
from replica.ids import PublicKey
from replica.io.process import Waits, get_logger
from replica.io.serving import status
from replica.limits import (
    FRAME_BYTES_MAX,
    IDLE_TIMEOUT_S,
    METADATA_BYTES_MAX,
    REQUEST_BYTES_MAX,
)
from replica.link import (
    NO_CERTIFICATE,
    NONCE_BYTES,
    Authenticator,
    Challenge,
    Steps,
    check_steps,
    finished,
    prove,
)
from replica.log import parse, public_key
from replica.refusals import (
    FrameMalformed,
    FrameTooLarge,
    LinkIdle,
    SlowReader,
)

log = get_logger()

TICKET_METADATA = "antiphon-ticket-bin"
CALL_TIMEOUT_S = 20.0

_MESSAGE_BYTES = FRAME_BYTES_MAX + 64 * 1024
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX * 4),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Links have their own flow control (Credit); the probe would only add frames.
    ("grpc.http2.bdp_probe", 0),
    # TRUST-11: a proxy of the environment has no part in connections to hubs and hosts.
    ("grpc.enable_http_proxy", 0),
    # That option is not asked for GRPC_ADDRESS_HTTP_PROXY, which then serves no address.
    ("grpc.address_http_proxy_enabled_addresses", ""),
    # Links and callers have pauses of their own, of seconds; gRPC's would grow to two minutes,
    # and calls made meanwhile fail though the hub is back.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # One connection per client object, since two objects may use two keys.
    ("grpc.use_local_subchannel_pool", 1),
)
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX * 4),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # LINK-82: pings every 10 s are permitted; the timer of a peer is not exact.
    ("grpc.http2.min_ping_interval_without_data_ms", 9_000),
    ("grpc.http2.bdp_probe", 0),
    # Of the algorithms only identity: 1 KB of gzip can be a message of 1 MB.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.so_reuseport", 0),
    # LIM-14: calls are counted by their keys, and connections without a call by nobody else.
    ("grpc.max_connection_idle_ms", int(1_000 * IDLE_TIMEOUT_S)),
    ("grpc.server_handshake_timeout_ms", int(1_000 * IDLE_TIMEOUT_S)),
)
CONNECTIONS_MAX = "grpc.max_allowed_incoming_connections"
"""Option of a server: connections of one of its addresses; more are closed at once."""

STREAMS_MAX = "grpc.max_concurrent_streams"
"""Option of a server: calls of one connection (LIM-14)."""

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext
_Request = TypeVar("_Request", bound=PbMessage)
_Result = TypeVar("_Result")

Handlers = Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]
"""The handlers of a service's methods, by name."""

OnRefusal = Callable[[Context, AntiphonError], Awaitable[None]]
"""Receives each error that ends a call of a peer, and may let the refusal wait for its turn."""


def now_ms() -> int:
    """Return Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


class RunSteps(Protocol):
    """Runs work in steps, and may serve others between them."""

    async def __call__(self, steps: Steps[_Result], /) -> _Result:
        """Run all steps; return the result."""
        ...


Admit = Callable[[Context], AbstractAsyncContextManager[RunSteps]]
"""Surrounds a unary call, or the receipt of the request of a stream.

It is entered before any byte of the request is asked for, so a call that it refuses costs
neither memory nor parsing.
"""


async def at_once(steps: Steps[_Result], /) -> _Result:
    """Run all steps without a pause; return the result."""
    return finished(steps)


@asynccontextmanager
async def anybody(_context: Context) -> AsyncIterator[RunSteps]:
    """Admit a call of anybody, and run its steps at once."""
    yield at_once


def ticket_holders(authenticator: Authenticator) -> Admit:
    """Return what admits calls with a ticket of `authenticator`, and runs their steps at once."""

    @asynccontextmanager
    async def admit(context: Context) -> AsyncIterator[RunSteps]:
        caller(authenticator, context)
        yield at_once

    return admit


def _parse_steps(request: type[_Request], data: bytes) -> Steps[_Request]:
    """Parse a request. Raises FrameTooLarge before it is parsed, FrameMalformed."""
    yield from check_steps(data, request.DESCRIPTOR)
    return parse(request, data, FrameMalformed)


async def _each_parsed(request: type[_Request], context: Context) -> AsyncIterator[_Request]:
    # Not by gRPC's iterator, which refers to itself while it is not read to its end.
    while isinstance(data := await context.read(), bytes):
        yield finished(_parse_steps(request, data))


class _Requests(Generic[_Request]):
    """Receives the requests of one method.

    gRPC would receive the only request of a call before it asks a handler of one request.
    """

    def __init__(self, request: type[_Request], bytes_max: int) -> None:
        """Receive requests of this type, with so many bytes at most."""
        self._request, self._bytes_max = request, bytes_max
        self._waits = Waits()

    async def receive(self, context: Context, run: RunSteps) -> _Request:
        """Receive the request of a call.

        Raises LinkIdle, FrameTooLarge before it is parsed, FrameMalformed.
        """
        try:
            async with asyncio.timeout(None) as wait:
                self._waits.begin(wait, limits.REQUEST_TIMEOUT_S)
                try:
                    # Not by the iterator: one that is not read to its end is closed by a task.
                    data = await context.read()
                finally:
                    self._waits.leave(wait)
        except TimeoutError as error:
            raise LinkIdle("the request of the call did not come in time") from error
        if not isinstance(data, bytes):  # gRPC's EOF
            raise FrameMalformed("the call has no request")
        if len(data) > self._bytes_max:
            raise FrameTooLarge(f"the request has {len(data)} bytes, of {self._bytes_max} at most")
        return await run(_parse_steps(self._request, data))


def unary(
    request: type[_Request],
    handler: Callable[[_Request, Context], Awaitable[PbMessage]],
    on_refusal: OnRefusal | None = None,
    admit: Admit = anybody,
    bytes_max: int = REQUEST_BYTES_MAX,
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Wrap an async unary handler: receive its request, turn errors into typed statuses."""
    requests = _Requests(request, bytes_max)

    async def call(_frames: AsyncIterator[bytes], context: Context) -> bytes:
        async with Answering(context, on_refusal), admit(context) as run:
            answer = await handler(await requests.receive(context, run), context)
            return answer.SerializeToString()
        raise AssertionError("a call that fails has ended")

    return grpc.stream_unary_rpc_method_handler(call)


def server_stream(
    request: type[_Request],
    handler: Callable[[_Request, Context], AsyncIterator[PbMessage]],
    on_refusal: OnRefusal | None = None,
    admit: Admit = anybody,
    bytes_max: int = REQUEST_BYTES_MAX,
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Wrap an async generator that answers one request with many messages.

    A reader that takes too long for one gets SlowReader: gRPC can't end the call earlier.
    """
    requests = _Requests(request, bytes_max)

    async def call(_frames: AsyncIterator[bytes], context: Context) -> None:
        async with Answering(context, on_refusal):
            async with admit(context) as run:
                asked = await requests.receive(context, run)
            async for message in handler(asked, context):
                began = time.monotonic()
                await context.write(message.SerializeToString())
                if time.monotonic() - began > limits.WRITE_TIMEOUT_S:
                    raise SlowReader

    return grpc.stream_stream_rpc_method_handler(call)


def writing_stream(
    request: type[_Request],
    handler: Callable[[_Request, Context], Awaitable[None]],
    on_refusal: OnRefusal | None = None,
    admit: Admit = anybody,
    bytes_max: int = REQUEST_BYTES_MAX,
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Wrap a coroutine that answers one request by writing to the context itself."""
    requests = _Requests(request, bytes_max)

    async def call(_frames: AsyncIterator[bytes], context: Context) -> None:
        async with Answering(context, on_refusal):
            async with admit(context) as run:
                asked = await requests.receive(context, run)
            await handler(asked, context)

    return grpc.stream_stream_rpc_method_handler(call)


def client_stream(
    request: type[_Request],
    handler: Callable[[AsyncIterator[_Request], Context], Awaitable[PbMessage]],
    on_refusal: OnRefusal | None = None,
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Wrap an async handler of many messages that answers with one."""

    async def call(_frames: AsyncIterator[bytes], context: Context) -> bytes:
        async with Answering(context, on_refusal):
            answer = await handler(_each_parsed(request, context), context)
            return answer.SerializeToString()
        raise AssertionError("a call that fails has ended")

    return grpc.stream_unary_rpc_method_handler(call)


def both_streams(
    request: type[_Request],
    handler: Callable[[AsyncIterator[_Request], Context], AsyncIterator[PbMessage]],
    on_refusal: OnRefusal | None = None,
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Wrap an async generator that answers many messages with many."""

    async def call(_frames: AsyncIterator[bytes], context: Context) -> None:
        async with Answering(context, on_refusal):
            async for message in handler(_each_parsed(request, context), context):
                await context.write(message.SerializeToString())

    return grpc.stream_stream_rpc_method_handler(call)


def not_here(admit: Admit) -> "grpc.RpcMethodHandler[Any, Any]":
    """Return a handler that answers as gRPC does for a method that nobody serves."""

    async def call(_frames: AsyncIterator[bytes], context: Context) -> None:
        async with Answering(context):
            async with admit(context):
                pass  # in the answer it has no place: another call would take that in its middle
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    return grpc.stream_stream_rpc_method_handler(call)


class Answering(AbstractAsyncContextManager[None, None]):
    """End the call with a typed status on any error; a bug's text is not sent to the peer.

    gRPC would send the exception's text. A class: a generator costs each call ten functions.
    """

    def __init__(self, context: Context, on_refusal: OnRefusal | None = None) -> None:
        """Answer a call; `on_refusal` receives the error that ends it."""
        self._context = context
        self._on_refusal = on_refusal

    async def __aenter__(self) -> None:
        """Do nothing."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        """End the call if there was an error, unless gRPC has ended it (DECISIONS D524)."""
        try:
            await self._end(error)
        except grpc.aio.AbortError as aborted:
            # gRPC keeps it with the call, and its frames refer to the call: together they would
            # wait for a pass of the garbage collector (DECISIONS D518).
            asyncio.get_running_loop().call_soon(_forget_frames, aborted)
            raise
        except grpc.aio.InternalError as ended:  # its frames refer to it, too
            asyncio.get_running_loop().call_soon(_forget_frames, ended)
            raise asyncio.CancelledError from ended

    async def _end(self, error: BaseException | None) -> None:
        if isinstance(error, grpc.aio.InternalError):
            raise error
        if not isinstance(error, Exception) or isinstance(error, grpc.aio.BaseError):
            return  # those of gRPC itself: the call has ended already
        if not isinstance(error, AntiphonError):
            log.exception("a call failed")
            error = bug()
        if self._on_refusal is not None:
            await self._on_refusal(self._context, error)
        await status.abort(self._context, error)


def _forget_frames(error: BaseException) -> None:
    error.__context__ = error.__traceback__ = None


def bug() -> AntiphonError:
    """Return the error sent to a peer in place of an unexpected exception."""
    return AntiphonError("a bug on this side; its log says more")


def has_tls(context: Context) -> bool:
    """Say whether the call came over TLS."""
    return context.auth_context().get("transport_security_type") == [b"ssl"]


def caller(authenticator: Authenticator, context: Context) -> PublicKey:
    """Return the key the call's ticket is bound to. Raises Unauthenticated."""
    metadata = dict(context.invocation_metadata() or ())
    ticket = metadata.get(TICKET_METADATA, b"")
    return authenticator.holder(ticket if isinstance(ticket, bytes) else b"", now_ms())


def answer_authenticate(
    authenticator: Authenticator,
    request: pb.AuthenticateRequest,
    certificate_digest: bytes = NO_CERTIFICATE,
) -> pb.AuthenticateResponse:
    """Serve one step of Authenticate on a connection with this certificate. Raises ProofInvalid."""
    key = PublicKey(request.client_key)
    if not request.HasField("challenge"):
        c = authenticator.challenge(key, request.client_nonce, now_ms(), certificate_digest)
        return pb.AuthenticateResponse(
            challenge=pb.Challenge(
                hub_key=c.server_key,
                hub_nonce=c.server_nonce,
                certificate_digest=b""
                if c.certificate_digest == NO_CERTIFICATE
                else c.certificate_digest,
                expire_time_ms=c.expire_time_ms,
                hub_signature=c.signature,
            )
        )
    expire_ms = request.challenge.expire_time_ms
    ticket = authenticator.admit(
        key,
        request.client_nonce,
        expire_ms,
        request.client_signature,
        now_ms(),
        certificate_digest,
    )
    return pb.AuthenticateResponse(ticket=ticket)


Authenticate = Callable[[pb.AuthenticateRequest], Awaitable[pb.AuthenticateResponse]]


async def obtain_ticket(
    call: Authenticate,
    key: Ed25519PrivateKey,
    expected_server: PublicKey | None,
    certificate_digest: bytes = NO_CERTIFICATE,
) -> tuple[PublicKey, bytes]:
    """Run both steps of Authenticate; return (server key, ticket).

    `certificate_digest` is that of the only certificate that the connection accepts.
    Raises PeerIdentityChanged if the pinned key differs, ProofInvalid, HubUnreachable.
    """
    nonce = os.urandom(NONCE_BYTES)
    public = public_key(key)
    first = await call(pb.AuthenticateRequest(client_key=public, client_nonce=nonce))
    raw = first.challenge
    challenge = Challenge(
        PublicKey(raw.hub_key),
        raw.hub_nonce,
        raw.certificate_digest or NO_CERTIFICATE,
        raw.expire_time_ms,
        raw.hub_signature,
    )
    signature = prove(
        key,
        nonce,
        challenge,
        expected_server=expected_server,
        certificate_digest=certificate_digest,
        now_ms=now_ms(),
    )
    second = await call(
        pb.AuthenticateRequest(
            client_key=public, client_nonce=nonce, challenge=raw, client_signature=signature
        )
    )
    return challenge.server_key, second.ticket


async def typed(call: Awaitable[Any]) -> Any:
    """Await a client call; raise its typed error instead of AioRpcError."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise status.from_rpc_error(error) from error
