"""Proof of possession and tickets (spec/04-link §3).

Pure: nonces, secrets and time are arguments. One fixed-width transcript is
signed by both sides, so that neither signature can be replayed on another
link, in another role, or behind another certificate.
"""

import hashlib
import hmac
from dataclasses import dataclass, replace
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.conversation import ClockInvalid
from replica.errors import EntryRefused
from replica.ids import KEY_BYTES, PublicKey, pae, short
from replica.limits import TICKET_LIFETIME_S
from replica.log import public_key, verify
from replica.refusals import PeerIdentityChanged, ProofInvalid, Unauthenticated

_CLOCK_STEP_MS = 60_000
"""A clock that is set back by less ends no ticket."""


class CertificateUnproved(ProofInvalid):
    """The certificate of the connection is not the one that the hub's key signed."""

    next_step = (
        "Connect again. If it stays, somebody relays the connection and could read it: do not go"
        " on, and ask the hub's operator."
    )


class ClockAhead(ProofInvalid):
    """By the clock of this machine, the hub's challenge ended before it came."""

    next_step = (
        "Compare this machine's clock with the hub's, and set the wrong one: they differ by 15"
        " minutes or more. Entries are kept and are sent on reconnect."
    )


TRANSCRIPT_TAG = b"antiphon/v1/authenticate"
TICKET_TAG = b"antiphon/v1/ticket"
NONCE_BYTES = 32
NO_CERTIFICATE = bytes(32)
_SERVER_ROLE, _CLIENT_ROLE = b"\x01", b"\x02"
_TICKET_BYTES = KEY_BYTES + 8 + 32


@dataclass(frozen=True, slots=True)
class Challenge:
    """The server's half of the transcript; `certificate_digest` is zeros without TLS."""

    server_key: PublicKey
    server_nonce: bytes
    certificate_digest: bytes
    expire_time_ms: int
    signature: bytes


def _transcript(
    role: bytes, client_key: PublicKey, client_nonce: bytes, challenge: Challenge
) -> bytes:
    fields = (
        challenge.server_key,
        client_key,
        client_nonce,
        challenge.server_nonce,
        challenge.certificate_digest,
        challenge.expire_time_ms.to_bytes(8, "little"),
        role,
    )
    return pae(TRANSCRIPT_TAG, b"".join(fields))


def _check_widths(client_key: bytes, client_nonce: bytes) -> None:
    if len(client_key) != KEY_BYTES or len(client_nonce) != NONCE_BYTES:
        raise ProofInvalid("key and nonce have 32 bytes each")


TICKETS_REMEMBERED = 4096


class Authenticator:
    """The server's side of the proof; it stores nothing between the two steps."""

    def __init__(self, key: Ed25519PrivateKey, secret: bytes) -> None:
        """`secret` authenticates nonces and tickets; a fresh one ends all tickets."""
        self._key = key
        self.public = public_key(key)
        self._secret = secret
        # A client sends the same ticket with every call. Refused tickets are not cached.
        self._genuine = lru_cache(TICKETS_REMEMBERED)(self._open)

    def challenge(
        self,
        client_key: PublicKey,
        client_nonce: bytes,
        now_ms: int,
        certificate_digest: bytes = NO_CERTIFICATE,
    ) -> Challenge:
        """Answer the first step, on a connection with this certificate.

        Raises ProofInvalid, and ClockInvalid where the clock is set before 1970.
        """
        _check_widths(client_key, client_nonce)
        if now_ms < 0:
            raise ClockInvalid
        expire_ms = now_ms + TICKET_LIFETIME_S * 1000
        nonce = self._nonce(client_key, client_nonce, expire_ms)
        unsigned = Challenge(self.public, nonce, certificate_digest, expire_ms, b"")
        return sign_challenge(self._key, client_key, client_nonce, unsigned)

    def admit(
        self,
        client_key: PublicKey,
        client_nonce: bytes,
        expire_time_ms: int,
        client_signature: bytes,
        now_ms: int,
        certificate_digest: bytes = NO_CERTIFICATE,
    ) -> bytes:
        """Check the second step and return a ticket. Raises ProofInvalid."""
        _check_widths(client_key, client_nonce)
        latest_ms = now_ms + TICKET_LIFETIME_S * 1000
        if not now_ms < expire_time_ms <= latest_ms:
            raise ProofInvalid("the challenge has expired")
        # The server's nonce is a MAC over the rest, so it need not be stored.
        nonce = self._nonce(client_key, client_nonce, expire_time_ms)
        ours = Challenge(self.public, nonce, certificate_digest, expire_time_ms, b"")
        try:
            message = _transcript(_CLIENT_ROLE, client_key, client_nonce, ours)
            verify(client_key, client_signature, message)
        except EntryRefused as error:
            raise ProofInvalid(error.detail) from error
        content = client_key + expire_time_ms.to_bytes(8, "little")
        return content + self._mac(TICKET_TAG, content)

    def holder(self, ticket: bytes, now_ms: int) -> PublicKey:
        """Return the key a ticket is bound to. Raises Unauthenticated."""
        key, expire_ms = self._genuine(ticket)
        if now_ms >= expire_ms:
            raise Unauthenticated("the ticket has expired")
        if expire_ms > now_ms + TICKET_LIFETIME_S * 1000 + _CLOCK_STEP_MS:
            raise Unauthenticated("the ticket was made when the clock here was ahead")
        return key

    def _open(self, ticket: bytes) -> tuple[PublicKey, int]:
        content, mac = ticket[:-32], ticket[-32:]
        genuine = len(ticket) == _TICKET_BYTES and hmac.compare_digest(
            mac, self._mac(TICKET_TAG, content)
        )
        if not genuine:
            raise Unauthenticated("the ticket is missing or was not made with this server's secret")
        return PublicKey(content[:KEY_BYTES]), int.from_bytes(content[KEY_BYTES:], "little")

    def _nonce(self, client_key: PublicKey, client_nonce: bytes, expire_ms: int) -> bytes:
        content = client_key + client_nonce + expire_ms.to_bytes(8, "little")
        return self._mac(TRANSCRIPT_TAG, content)

    def _mac(self, tag: bytes, content: bytes) -> bytes:
        return hmac.digest(self._secret, pae(tag, content), hashlib.sha256)


def sign_challenge(
    key: Ed25519PrivateKey, client_key: PublicKey, client_nonce: bytes, unsigned: Challenge
) -> Challenge:
    """Return a challenge with the server's signature."""
    message = _transcript(_SERVER_ROLE, client_key, client_nonce, unsigned)
    return replace(unsigned, signature=key.sign(message))


def prove(
    key: Ed25519PrivateKey,
    client_nonce: bytes,
    challenge: Challenge,
    *,
    expected_server: PublicKey | None,
    certificate_digest: bytes = NO_CERTIFICATE,
    now_ms: int,
) -> bytes:
    """Check the server's half and return the client's signature.

    `expected_server` is the pinned key. None accepts any key at first contact,
    which is for loopback only. Raises PeerIdentityChanged for another key, and ProofInvalid,
    of which ClockAhead says that the challenge has expired.
    """
    public = public_key(key)
    if expected_server is not None and challenge.server_key != expected_server:
        pinned, shown = short(expected_server), short(challenge.server_key)
        raise PeerIdentityChanged(f"expected {pinned}, the server shows {shown}")
    if challenge.certificate_digest != certificate_digest:
        raise CertificateUnproved("the server proved another TLS certificate")
    if challenge.expire_time_ms <= now_ms:
        raise ClockAhead
    if len(challenge.server_nonce) != NONCE_BYTES or len(challenge.certificate_digest) != 32:
        raise ProofInvalid("the challenge has wrong widths")
    try:
        message = _transcript(_SERVER_ROLE, public, client_nonce, challenge)
        verify(challenge.server_key, challenge.signature, message)
    except EntryRefused as error:
        raise ProofInvalid(f"the server's signature: {error.detail}") from error
    return key.sign(_transcript(_CLIENT_ROLE, public, client_nonce, challenge))
