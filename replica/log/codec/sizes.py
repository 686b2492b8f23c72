"""Fields of a fixed size in bodies (spec/02-entry §5)."""

from replica.ids import ID_BYTES, KEY_BYTES, Digest, EntryId, PublicKey
from replica.refusals import BodyMalformed


def sized(value: bytes, size: int, label: str) -> bytes:
    """Return bytes of a fixed size. Raises BodyMalformed."""
    if len(value) != size:
        raise BodyMalformed(f"{label} has {len(value)} bytes, not {size}")
    return value


def entry_id_of(value: bytes, label: str) -> EntryId:
    """Return an entry's id. Raises BodyMalformed."""
    return EntryId(sized(value, ID_BYTES, label))


def key_of(value: bytes, label: str) -> PublicKey:
    """Return a public key. Raises BodyMalformed."""
    return PublicKey(sized(value, KEY_BYTES, label))


def digest_of(value: bytes, label: str) -> Digest:
    """Return a digest. Raises BodyMalformed."""
    return Digest(sized(value, ID_BYTES, label))
