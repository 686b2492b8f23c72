"""The connection to a hub: plain on loopback, TLS anywhere else (spec/09-trust §2).

A hub's certificate is signed by nobody, and its digest is stated in the
Authenticate transcript. So a client first fetches the certificate by a handshake
of its own, without trust, then lets gRPC accept this certificate alone, and uses
the connection once the transcript has proved the certificate to be the hub's
(DECISIONS D274).
"""

import asyncio
import errno
import hashlib
import math
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from replica.conversation import is_loopback, require_address
from replica.io.files import TLS_NAME
from replica.io.process import note_grpc
from replica.io.serving import rpc
from replica.link import NO_CERTIFICATE
from replica.refusals import HubUnreachable

HANDSHAKE_TIMEOUT_S = 10.0
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
"""What OpenSSL calls the answer of a server that has no TLS."""
_HUNG_UP = "Socket closed"
"""Words of gRPC for a peer that ends a connection where it was to begin HTTP/2."""


class TlsOnLoopback(HubUnreachable):
    """What listens at this address has TLS, which is not used on loopback."""

    next_step = (
        "Use the machine's other address, as members elsewhere do. Or let the hub listen on"
        " loopback too, on another port: `--listen 0.0.0.0:7411,127.0.0.1:7412`, and use that."
    )


@dataclass(frozen=True, slots=True)
class HubChannel:
    """A gRPC channel, and the digest of the only certificate it accepts."""

    grpc: Any
    certificate_digest: bytes
    """SHA-256 of the certificate; zeros without TLS."""
    _stubs: dict[Callable[[Any], Any], Any] = field(default_factory=dict, compare=False)

    def stub(self, service: Callable[[Any], Any]) -> Any:
        """Return the channel's stub of a service, given by its class.

        A stub makes an object for each method of its service, so it is made once.
        """
        if service not in self._stubs:
            self._stubs[service] = service(self.grpc)
        return self._stubs[service]

    def accepts(self, certificate: bytes) -> bool:
        """Say whether this channel accepts a certificate (DER)."""
        return hashlib.sha256(certificate).digest() == self.certificate_digest


def plain_channel(address: str) -> HubChannel:
    """Return a channel without TLS, for loopback only; it connects lazily."""
    note_grpc()
    channel = grpc.aio.insecure_channel(address, options=rpc.CHANNEL_OPTIONS)
    return HubChannel(channel, NO_CERTIFICATE)


class RetiredChannels:
    """Channels that others have replaced. Each is closed as soon as no call runs on it.

    A hub may show another certificate at each proof of its key.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._closing: dict[asyncio.Task[None], HubChannel] = {}

    def __len__(self) -> int:
        """Count those on which calls run."""
        return len(self._closing)

    def add(self, channel: HubChannel) -> None:
        """Take no more calls on a channel, and close it behind those that run."""
        closing = asyncio.create_task(channel.grpc.close(math.inf), name="retired channel")
        self._closing[closing] = channel
        closing.add_done_callback(lambda ended: self._closing.pop(ended, None))

    async def close(self) -> None:
        """Close all at once, with the calls that run."""
        for closing, channel in tuple(self._closing.items()):
            closing.cancel()
            await channel.grpc.close()


async def open_channel(address: str) -> HubChannel:
    """Return a channel to the hub at `address` (host:port). Raises HubUnreachable.

    Off loopback nothing is proved yet: the caller authenticates the hub with the
    channel's certificate digest before anything else is sent.
    """
    if is_loopback(address):
        return plain_channel(address)
    return secure_channel(address, await served_certificate(address))


def secure_channel(address: str, certificate: bytes) -> HubChannel:
    """Return a channel that accepts `certificate` (DER) alone, whatever the host's name is."""
    note_grpc()
    root = ssl.DER_cert_to_PEM_cert(certificate).encode()
    options = (*rpc.CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", TLS_NAME))
    credentials = grpc.ssl_channel_credentials(root)
    channel = grpc.aio.secure_channel(address, credentials, options=options)
    return HubChannel(channel, hashlib.sha256(certificate).digest())


def _words_of(error: Exception) -> str:
    """Return why no TLS connection came about, in the words of the system."""
    if isinstance(error, ssl.SSLError) and error.reason:
        words = error.reason.replace("_", " ").lower()  # without numbers of lines in OpenSSL
        return "no TLS is spoken there" if error.reason in _NO_TLS else words
    if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
        return str(error)
    if error.errno is None:
        is_late = isinstance(error, TimeoutError)
        closed = str(error) or "the connection was closed in the TLS handshake"
        return "no TLS handshake in time" if is_late else closed
    # The words of asyncio name its own calls.
    known = error.errno in errno.errorcode
    return (os.strerror(error.errno) if known else error.strerror or str(error)).lower()


async def explained(address: str, error: HubUnreachable) -> HubUnreachable:
    """Return why there is no plain connection to `address`: TlsOnLoopback, or `error`.

    A hub that listens on all addresses of its machine has TLS on loopback as well.
    """
    if not is_loopback(address) or _HUNG_UP not in error.detail:
        return error
    try:
        await served_certificate(address)
    except HubUnreachable:
        return error
    return TlsOnLoopback(f"{address} has TLS, which is not used on loopback")


async def served_certificate(address: str) -> bytes:
    """Return the certificate that a server shows now, as DER, unproved. Raises HubUnreachable."""
    host, port = require_address(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Nothing is sent here. Trust comes from the hub's signature over the digest.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, ValueError) as error:  # TimeoutError and SSLError are OSErrors
        raise HubUnreachable(f"{address}: {_words_of(error)}") from error
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    if not shown:
        raise HubUnreachable(f"{address}: no certificate was shown")
    return bytes(shown)
