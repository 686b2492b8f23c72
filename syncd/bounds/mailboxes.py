"""Mailboxes in which newcomers leave proofs for inviters (spec/09-trust §5).

Pure and bounded. A name is a hash that only holders of a code know. A proof left
in an unknown or a full mailbox gets the same answer as any other, and is dropped.
"""

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from replica import limits
from replica.errors import with_step
from replica.ids import ID_BYTES, KEY_BYTES, PublicKey
from replica.refusals import ArgumentInvalid, QuotaExceeded

PROOF_BYTES = 32
UNANSWERED = 0
VERDICTS_MAX = 255
SHARDS = 64
"""Parts in which the mailboxes are stored, so that a change rewrites little.

A new mailbox goes into the shard with fewest: owners choose names, and may not choose shards.
"""
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
    shard: int
    deposits: dict[PublicKey, Deposit] = field(default_factory=dict)


class Mailboxes:
    """All mailboxes of a hub."""

    def __init__(self) -> None:
        """Begin with none."""
        self._boxes: dict[bytes, Mailbox] = {}
        self._shards: list[set[bytes]] = [set() for _ in range(SHARDS)]

    def __len__(self) -> int:
        """Count the mailboxes, expired ones included until the next `open`."""
        return len(self._boxes)

    def open(
        self, owner: PublicKey, name: bytes, expire_time_ms: int, now_ms: int
    ) -> frozenset[int]:
        """Add a mailbox until `expire_time_ms`; return the shards to store.

        One that this owner has open keeps its proofs, and lasts until the later of both times.
        Where the hub has no more room, the key with most mailboxes loses its oldest to a key
        with fewer. Raises ArgumentInvalid, QuotaExceeded.
        """
        latest_ms = now_ms + limits.INVITATION_LIFETIME_S * 1000 + _SKEW_MS
        if len(name) != ID_BYTES:
            raise ArgumentInvalid("a mailbox has a name of 32 bytes")
        if not now_ms < expire_time_ms <= latest_ms:
            error = ArgumentInvalid("by the hub's clock, this mailbox does not end within 24 hours")
            raise with_step(error, "Compare this machine's clock with the hub's.")
        self._expire(now_ms)
        box = self._boxes.get(name)
        if box is not None:
            if box.owner != owner:
                raise ArgumentInvalid("another key has opened this mailbox")
            box.expire_time_ms = max(box.expire_time_ms, expire_time_ms)
            return frozenset({box.shard})
        held = Counter(box.owner for box in self._boxes.values())
        if held[owner] >= limits.MAILBOXES_PER_KEY_MAX:
            raise QuotaExceeded(f"this key has {held[owner]} mailboxes")
        is_full = len(self._boxes) >= limits.MAILBOXES_MAX
        changed = {self._make_room(owner, held)} if is_full else set()
        shard = min(range(SHARDS), key=lambda index: len(self._shards[index]))
        self._add(name, Mailbox(owner, expire_time_ms, shard))
        return frozenset({*changed, shard})

    def _make_room(self, owner: PublicKey, held: "Counter[PublicKey]") -> int:
        ((heaviest, most),) = held.most_common(1)
        if most <= held[owner] + 1:
            raise QuotaExceeded(f"this hub has {len(self._boxes)} mailboxes")
        return self._remove(next(n for n, box in self._boxes.items() if box.owner == heaviest))

    def _add(self, name: bytes, box: Mailbox) -> None:
        self._boxes[name] = box
        self._shards[box.shard].add(name)

    def _remove(self, name: bytes) -> int:
        shard = self._boxes.pop(name).shard
        self._shards[shard].discard(name)
        return shard

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
            raise ArgumentInvalid(f"an answer is a number from 1 to {VERDICTS_MAX}")
        box = self.of(owner, name, now_ms)
        if box is not None and newcomer in box.deposits:
            box.deposits[newcomer].verdict = verdict

    def close(self, owner: PublicKey, name: bytes, now_ms: int) -> None:
        """Remove a mailbox of `owner`; do nothing where there is none."""
        if self.of(owner, name, now_ms) is not None:
            self._remove(name)

    def _expire(self, now_ms: int) -> None:
        """Forget what has expired; the stored ones are left out when they are loaded."""
        for name in [n for n, box in self._boxes.items() if now_ms >= box.expire_time_ms]:
            self._remove(name)

    # --- storage ------------------------------------------------------------------

    def shard_of(self, name: bytes) -> int:
        """Return the shard that holds a mailbox; one of them where there is none."""
        box = self._boxes.get(name)
        return box.shard if box is not None else sum(name) % SHARDS

    def shard(self, index: int) -> bytes:
        """Return the mailboxes of one shard as bytes."""
        parts = []
        for name in sorted(self._shards[index]):
            box = self._boxes[name]
            parts.append(_HEAD.pack(name, box.owner, box.expire_time_ms, len(box.deposits)))
            parts += [_DEPOSIT.pack(k, d.proof, d.verdict) for k, d in box.deposits.items()]
        return b"".join(parts)

    def load(self, index: int, data: bytes, now_ms: int) -> None:
        """Add the mailboxes of a stored shard that have not expired."""
        for name, box in _parsed(data, index):
            if name not in self._boxes and now_ms < box.expire_time_ms:
                self._add(name, box)


_SKEW_MS = 10 * 60 * 1000
"""How far an inviter's clock may be ahead."""


def _parsed(data: bytes, shard: int) -> Iterator[tuple[bytes, Mailbox]]:
    at = 0
    while at < len(data):
        name, owner, expire_time_ms, count = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        box = Mailbox(PublicKey(owner), expire_time_ms, shard)
        for _ in range(count):
            key, proof, verdict = _DEPOSIT.unpack_from(data, at)
            box.deposits[PublicKey(key)] = Deposit(proof, verdict)
            at += _DEPOSIT.size
        yield name, box


assert KEY_BYTES == ID_BYTES == PROOF_BYTES == 32, "the records above have fields of 32 bytes"
