"""Lane heads and their digest (spec/03-order §5)."""

from collections.abc import Iterable

from replica.ids import DIGEST_TAG, Digest, Position, tagged_sha256


def head_bytes(head: Position) -> bytes:
    """Return one lane head at fixed width, 81 B: author, epoch, track, seq, id."""
    lane = head.lane
    epoch, track = lane.epoch.to_bytes(8, "little"), lane.track.to_bytes(1, "little")
    return b"".join((lane.author, epoch, track, head.seq.to_bytes(8, "little"), head.id))


def digest_of(heads: Iterable[Position]) -> Digest:
    """Hash lane heads, sorted by the caller."""
    return digest_of_packed(map(head_bytes, heads))


def digest_of_packed(heads: Iterable[bytes]) -> Digest:
    """Hash lane heads that are packed and sorted already."""
    return tagged_sha256(DIGEST_TAG, b"".join(heads))
