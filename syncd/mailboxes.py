"""Mailboxes in which newcomers leave proofs for inviters (spec/09-trust §5).

Pure and bounded. A name is a hash that only holders of a code know. A proof left
in an unknown or a full mailbox gets the same answer as any other, and is dropped.
"""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from replica import limits
from replica.ids import ID_BYTES, KEY_BYTES, PublicKey
from replica.refusals import ArgumentInvalid, QuotaExceeded

PROOF_BYTES = 32
UNANSWERED = 0
VERDICTS_MAX = 255
SHARDS = 16
"""Parts in which the mailboxes are stored, so that a change rewrites little."""
_HEAD = struct.Struct("<32s32sQB")
_DEPOSIT = struct.Struct("<32s32sB")


@dataclass(slots=True)
class Deposit:
    """A newcomer's proof, and the inviter's answer to it."""

    proof: bytes
    verdict: int = UNANSWERED


@dataclass(slots=True)
class Mailbox:
    """The proofs left for one invitation, by the key that left them."""

    owner: PublicKey
    expire_time_ms: int
    deposits: dict[PublicKey, Deposit] = field(default_factory=dict)


class Mailboxes:
    """All mailboxes of a hub."""

    def __init__(self) -> None:
        """Begin with none."""
        self._boxes: dict[bytes, Mailbox] = {}

    def __len__(self) -> int:
        """Count the mailboxes, expired ones included until the next `open`."""
        return len(self._boxes)

    def open(self, owner: PublicKey, name: bytes, expire_time_ms: int, now_ms: int) -> None:
        """Add a mailbox until `expire_time_ms`. Raises ArgumentInvalid, QuotaExceeded."""
        latest_ms = now_ms + limits.INVITATION_LIFETIME_S * 1000 + _SKEW_MS
        if len(name) != ID_BYTES or not now_ms < expire_time_ms <= latest_ms:
            raise ArgumentInvalid("a mailbox has a name of 32 bytes and expires within 24 hours")
        if name in self._boxes:
            if self._boxes[name].owner != owner:
                raise ArgumentInvalid("another key has opened this mailbox")
            return
        self._expire(now_ms)
        held = Counter(box.owner for box in self._boxes.values())[owner]
        if held >= limits.MAILBOXES_PER_KEY_MAX or len(self._boxes) >= limits.MAILBOXES_MAX:
            raise QuotaExceeded(f"this key has {held} mailboxes, this hub {len(self._boxes)}")
        self._boxes[name] = Mailbox(owner, expire_time_ms)

    def deposit(self, name: bytes, newcomer: PublicKey, proof: bytes, now_ms: int) -> int:
        """Leave a proof, or drop it; return the answer, UNANSWERED unless the owner gave one."""
        if len(name) != ID_BYTES or len(proof) != PROOF_BYTES:
            raise ArgumentInvalid("a mailbox's name and a proof have 32 bytes each")
        box = self._boxes.get(name)
        if box is None or now_ms >= box.expire_time_ms:
            return UNANSWERED
        held = box.deposits.get(newcomer)
        if held is not None and held.proof == proof:
            return held.verdict
        if held is None and len(box.deposits) >= limits.DEPOSITS_MAX:
            return UNANSWERED
        if held is None or held.verdict == UNANSWERED:
            box.deposits[newcomer] = Deposit(proof)
        return UNANSWERED

    def of(self, owner: PublicKey, name: bytes, now_ms: int) -> Mailbox | None:
        """Return a mailbox of `owner`; None if there is none, it expired, or is another's."""
        box = self._boxes.get(name)
        is_theirs = box is not None and box.owner == owner and now_ms < box.expire_time_ms
        return box if is_theirs else None

    def answer(
        self, owner: PublicKey, name: bytes, newcomer: PublicKey, verdict: int, now_ms: int
    ) -> None:
        """Record the owner's answer; do nothing where there is no such proof."""
        if not UNANSWERED < verdict <= VERDICTS_MAX:
            raise ArgumentInvalid("an answer is one of the numbers of the protocol")
        box = self.of(owner, name, now_ms)
        if box is not None and newcomer in box.deposits:
            box.deposits[newcomer].verdict = verdict

    def close(self, owner: PublicKey, name: bytes, now_ms: int) -> None:
        """Remove a mailbox of `owner`; do nothing where there is none."""
        if self.of(owner, name, now_ms) is not None:
            del self._boxes[name]

    def _expire(self, now_ms: int) -> None:
        gone = [name for name, box in self._boxes.items() if now_ms >= box.expire_time_ms]
        for name in gone:
            del self._boxes[name]

    # --- storage ------------------------------------------------------------------

    def shard(self, index: int) -> bytes:
        """Return the mailboxes of one shard as bytes."""
        parts = []
        for name, box in sorted(self._boxes.items()):
            if shard_of(name) == index:
                parts.append(_HEAD.pack(name, box.owner, box.expire_time_ms, len(box.deposits)))
                parts += [_DEPOSIT.pack(k, d.proof, d.verdict) for k, d in box.deposits.items()]
        return b"".join(parts)

    def load(self, shards: Iterable[bytes]) -> None:
        """Add the mailboxes of stored shards."""
        for data in shards:
            self._boxes |= dict(_parsed(data))


_SKEW_MS = 10 * 60 * 1000
"""How far an inviter's clock may be ahead."""


def shard_of(name: bytes) -> int:
    """Return the index of the shard that holds a mailbox."""
    return name[0] % SHARDS


def _parsed(data: bytes) -> Iterator[tuple[bytes, Mailbox]]:
    at = 0
    while at < len(data):
        name, owner, expire_time_ms, count = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        box = Mailbox(PublicKey(owner), expire_time_ms)
        for _ in range(count):
            key, proof, verdict = _DEPOSIT.unpack_from(data, at)
            box.deposits[PublicKey(key)] = Deposit(proof, verdict)
            at += _DEPOSIT.size
        yield name, box


assert KEY_BYTES == ID_BYTES == PROOF_BYTES == 32, "the records above have fields of 32 bytes"
