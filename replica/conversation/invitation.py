"""Invitations: a code for a newcomer, and the proof that it was held (spec/09-trust §5).

Pure. The code has 128 random bits that are never sent. The newcomer leaves a MAC
under them in a mailbox at the hub, and the inviter's replica checks it. The hub
sees a hash of the bits and MACs, so it can neither forge nor redeem a proof.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

from replica import limits
from replica.conversation.address import address_of, is_address
from replica.errors import RequestRefused, Unavailable
from replica.ids import ID_BYTES, KEY_BYTES, ConversationId, PublicKey, pae, tagged_sha256
from replica.log import Entry, Grant, Log, Member, Membership, Role
from replica.refusals import ArgumentInvalid

CODE_TAG = b"antiphon/v1/invitation"
MAILBOX_TAG = b"antiphon/v1/invitation/mailbox"
PROOF_TAG = b"antiphon/v1/invitation/proof"
CODE_PREFIX = "antiphon1."
INVITATION_SECRET_BYTES = 16
ROLES_INVITED = frozenset({Role.READER, Role.WRITER, Role.HOST})
_CHECKSUM_BYTES = 4
_FIXED_BYTES = 3 * KEY_BYTES + 1 + 8 + INVITATION_SECRET_BYTES
_CODE_CHARACTERS_MAX = 1_024
_SEPARATORS = frozenset("\x1c\x1d\x1e\x1f")
"""What str.split takes for white space, although Unicode does not."""


class InviteInvalid(RequestRefused):
    """The text is not a complete invitation code."""

    reason = "INVITE_INVALID"
    next_step = "Copy the whole code, from `antiphon1.` on, or ask the inviter for another."


class InviteExpired(RequestRefused):
    """The invitation has expired."""

    reason = "INVITE_EXPIRED"
    next_step = "Ask the inviter for another; a code is valid for 24 hours."


class InviteUsed(RequestRefused):
    """Another key has joined with this invitation."""

    reason = "INVITE_USED"
    next_step = "Ask the inviter for another, and say so if you did not pass this one on."


class InviteRevoked(RequestRefused):
    """The inviter has revoked this invitation."""

    reason = "INVITE_REVOKED"
    next_step = "Ask the inviter for another."


class KeyRemoved(RequestRefused):
    """The key was removed from the conversation, which is for good."""

    reason = "KEY_REMOVED"
    next_step = "Join with a new key, in another folder: `antiphon join CODE --data-dir FOLDER`."


class JoinPending(Unavailable):
    """The inviter's replica has not answered yet; it may be offline.

    >>> code = trip.invite("bob")
    >>> try:
    ...     with antiphon.join(code, "~/bob", timeout_s=0):
    ...         pass
    ... except antiphon.JoinPending as error:
    ...     print(error.reason)
    JOIN_PENDING
    """

    reason = "JOIN_PENDING"
    next_step = "Run `antiphon join CODE` again once the inviter is online; the proof is kept."


class JoinVerdict(IntEnum):
    """The inviter's answer to a proof; the numbers are those of the protocol."""

    PENDING = 0
    GRANTED = 1
    USED = 2
    REVOKED = 3
    EXPIRED = 4
    REMOVED = 5


_REFUSALS: dict[JoinVerdict, type[RequestRefused | Unavailable]] = {
    JoinVerdict.PENDING: JoinPending,
    JoinVerdict.USED: InviteUsed,
    JoinVerdict.REVOKED: InviteRevoked,
    JoinVerdict.EXPIRED: InviteExpired,
    JoinVerdict.REMOVED: KeyRemoved,
}


@dataclass(frozen=True, slots=True)
class Invitation:
    """The content of a code."""

    hub_address: str
    hub_key: PublicKey
    conversation: ConversationId
    inviter: PublicKey
    role: Role
    expire_time_ms: int
    secret: bytes

    @property
    def mailbox(self) -> bytes:
        """The name of its mailbox at the hub, 32 bytes; it reveals nothing of the secret."""
        return tagged_sha256(MAILBOX_TAG, self.secret)

    def proof(self, newcomer: PublicKey) -> bytes:
        """Return the MAC that proves that `newcomer` holds the code, 32 bytes."""
        stated = b"".join(
            (
                self.hub_key,
                self.conversation,
                self.inviter,
                newcomer,
                bytes([self.role]),
                self.expire_time_ms.to_bytes(8, "little"),
            )
        )
        return hmac.digest(self.secret, pae(PROOF_TAG, stated), hashlib.sha256)

    def is_proof(self, newcomer: PublicKey, proof: bytes) -> bool:
        """Say whether `proof` is the MAC of `newcomer`."""
        return hmac.compare_digest(proof, self.proof(newcomer))


def check_role(role: Role) -> None:
    """Raise ArgumentInvalid for a role that no invitation may give."""
    if role not in ROLES_INVITED:
        raise ArgumentInvalid("an invitation gives the role of reader, writer or host, no other")


def check_public_address(address: str) -> None:
    """Raise ArgumentInvalid for an address that nobody can connect to."""
    found = address_of(address)
    if found is None or len(address.encode()) > limits.HOST_TEXT_BYTES_MAX:
        raise ArgumentInvalid(f"'{address}' is not the hub's host:port, with IPv6 in brackets")
    if found.is_of_all_interfaces:
        raise ArgumentInvalid(
            f"{address} stands for all addresses of this machine; name one that they reach"
        )


def encode_invitation(invitation: Invitation) -> str:
    """Return the code of an invitation, which is its text form."""
    content = b"".join(
        (
            invitation.hub_key,
            invitation.conversation,
            invitation.inviter,
            bytes([invitation.role]),
            invitation.expire_time_ms.to_bytes(8, "little"),
            invitation.secret,
            invitation.hub_address.encode(),
        )
    )
    content += tagged_sha256(CODE_TAG, content)[:_CHECKSUM_BYTES]
    return CODE_PREFIX + _text_of(content)


def _text_of(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_invitation(code: str) -> Invitation:
    """Read a code. Raises InviteInvalid."""
    text = "".join(code.split())
    if not text.startswith(CODE_PREFIX) or len(text) > _CODE_CHARACTERS_MAX:
        raise InviteInvalid
    if not _SEPARATORS.isdisjoint(code):
        raise InviteInvalid("the code has a wrong character")
    data = text.removeprefix(CODE_PREFIX)
    try:
        raw = base64.urlsafe_b64decode(data + "=" * (-len(data) % 4))
    except (binascii.Error, ValueError) as error:
        raise InviteInvalid from error
    # The decoder passes over other characters, padding and unused bits.
    if _text_of(raw) != data:
        raise InviteInvalid("the code has a wrong character")
    content, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    is_whole = checksum == tagged_sha256(CODE_TAG, content)[:_CHECKSUM_BYTES]
    if len(content) <= _FIXED_BYTES or not is_whole:
        raise InviteInvalid("the code is not complete, or has a wrong character")
    return _invitation(content)


def read_code(code: str, *, of_host: bool = False) -> Invitation:
    """Read a code for whoever joins with it: a person or program, or a model host.

    Raises InviteInvalid, and ArgumentInvalid for a code of the other sort.
    """
    invitation = decode_invitation(code)
    if of_host and invitation.role is not Role.HOST:
        raise ArgumentInvalid("the code is for a person; for a host it is made with `--role host`")
    if invitation.role is Role.HOST and not of_host:
        raise ArgumentInvalid("the code is for a model host: its operator sets it as --invitation")
    return invitation


def _invitation(content: bytes) -> Invitation:
    keys = [content[at : at + ID_BYTES] for at in (0, 32, 64)]
    rest = content[96:]
    try:
        role, address = Role(rest[0]), rest[25:].decode()
        check_role(role)
    except (ValueError, ArgumentInvalid) as error:
        raise InviteInvalid("the code states what no invitation can") from error
    if len(rest[25:]) > limits.HOST_TEXT_BYTES_MAX or not is_address(address):
        raise InviteInvalid("the code states no hub's address")
    return Invitation(
        address,
        PublicKey(keys[0]),
        ConversationId(keys[1]),
        PublicKey(keys[2]),
        role,
        int.from_bytes(rest[1:9], "little"),
        rest[9:25],
    )


@dataclass(frozen=True, slots=True)
class Issued:
    """An invitation as its inviter's replica records it."""

    invitation: Invitation
    name: str
    """The inviter's name for the newcomer."""
    create_time_ms: int
    claimed_by: PublicKey | None = None
    """The key it was redeemed by; recorded durably before the grant is written."""
    is_revoked: bool = False
    """Nobody is let in any more: whoever has redeemed it has its role already, or gets none."""
    granted: tuple[Grant, ...] = ()
    """The grants that this store wrote to the conversation since; recorded durably before."""

    def is_open(self, now_ms: int) -> bool:
        """Say whether a proof may still come that it has to answer."""
        return now_ms < self.invitation.expire_time_ms

    def is_valid(self, now_ms: int) -> bool:
        """Say whether it is open, and was not revoked."""
        return self.is_open(now_ms) and not self.is_revoked

    def is_waiting(self, now_ms: int) -> bool:
        """Say whether somebody can still join with it."""
        return self.is_valid(now_ms) and self.claimed_by is None


def judge_by_record(
    issued: Issued, newcomer: PublicKey, proof: bytes, now_ms: int
) -> JoinVerdict | None:
    """Return the answer to a proof as far as the log does not matter; None if it is none.

    PENDING is left to the log; the other answers but GRANTED stay, whatever is recorded later.
    """
    if not issued.invitation.is_proof(newcomer, proof):
        return None
    if issued.claimed_by not in (None, newcomer):
        return JoinVerdict.USED
    if issued.is_revoked:
        return JoinVerdict.REVOKED
    if issued.claimed_by is not None:
        return JoinVerdict.GRANTED
    if now_ms >= issued.invitation.expire_time_ms:
        return JoinVerdict.EXPIRED
    return JoinVerdict.PENDING


def judge(
    issued: Issued, newcomer: PublicKey, proof: bytes, membership: Membership, now_ms: int
) -> JoinVerdict | None:
    """Return the answer to a proof; None if it is none, which nobody answers.

    GRANTED binds the invitation to `newcomer`: the caller records that first.
    """
    verdict = judge_by_record(issued, newcomer, proof, now_ms)
    if verdict is not JoinVerdict.PENDING:
        return verdict
    return JoinVerdict.REMOVED if newcomer in membership.kept else JoinVerdict.GRANTED


def noted(issued: Issued, conversation: ConversationId, grant: Grant, now_ms: int) -> Issued:
    """Return the record with a grant that this store is about to write.

    Unchanged if the invitation is of another conversation, or nobody can redeem it any more.
    """
    is_redeemable = issued.claimed_by is None and not issued.is_revoked and issued.is_open(now_ms)
    is_about_it = is_redeemable and issued.invitation.conversation == conversation
    if not is_about_it or grant in issued.granted:
        return issued
    return replace(issued, granted=(*issued.granted, grant))


def has_unknown_grant(issued: Issued, log: Log, wrote: Callable[[Entry], bool]) -> bool:
    """Say whether this store wrote a grant that its record of an invitation lacks.

    If so, since the invitation was made, the store is a restored backup, and the
    invitation may have been redeemed after it. `wrote` tells its entries from those of
    other devices of the key, which redeem no invitation of this store.
    """
    for entry in log.entries.values():
        # One of the same millisecond came before it.
        if entry.header.create_time_ms <= issued.create_time_ms or not wrote(entry):
            continue
        match log.body(entry.id):
            case Member(Grant() as grant) if grant not in issued.granted:
                return True
    return False


def check_verdict(verdict: int) -> None:
    """Raise the error of any answer but GRANTED; an unknown one counts as PENDING."""
    if verdict != JoinVerdict.GRANTED:
        raise _REFUSALS[JoinVerdict(verdict) if is_answer(verdict) else JoinVerdict.PENDING]


def is_answer(verdict: int) -> bool:
    """Say whether the inviter has answered; an unknown answer counts as none yet."""
    return verdict != JoinVerdict.PENDING and verdict in set(JoinVerdict)
