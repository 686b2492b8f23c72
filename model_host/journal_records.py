"""The records of a journal (spec/07-host §4 step 5). Pure.

    head    magic, request, seal, run, profile, numerics class     136 bytes
    token   id as 4 bytes little-endian, first 4 bytes of the running draft digest

The digest distinguishes a token from bytes that a power loss may leave: zeros, or
earlier content of the file.
"""

import struct
from dataclasses import dataclass

from replica.conversation import extend_digest, start_digest
from replica.ids import Digest, EntryId

_HEAD = struct.Struct("<8s32s32sQ32s32s")
_TOKEN = struct.Struct("<I4s")
_MAGIC = b"AJRNL02\n"

HEAD_BYTES = _HEAD.size
TOKEN_BYTES = _TOKEN.size


@dataclass(frozen=True, slots=True)
class JournalHead:
    """The first record of a journal: the conditions under which the run may resume."""

    request: EntryId
    seal: EntryId
    run: int
    profile: Digest
    numerics_class: Digest

    def encode(self) -> bytes:
        """Return the fixed-width record."""
        return _HEAD.pack(
            _MAGIC, self.request, self.seal, self.run, self.profile, self.numerics_class
        )

    @property
    def digest(self) -> Digest:
        """The running draft digest before the first token."""
        return start_digest(self.request, self.run)


def decode_journal(data: bytes) -> tuple[JournalHead, list[int]] | None:
    """Return head and token ids; None if the head is cut off or of another format.

    The journal ends before the first token record that is torn or has a wrong digest.
    """
    if len(data) < HEAD_BYTES or not data.startswith(_MAGIC):
        return None
    _, request, seal, run, profile, numerics = _HEAD.unpack_from(data)
    head = JournalHead(EntryId(request), EntryId(seal), run, Digest(profile), Digest(numerics))
    token_ids: list[int] = []
    digest = head.digest
    for at in range(HEAD_BYTES, len(data) - TOKEN_BYTES + 1, TOKEN_BYTES):
        token_id, check = _TOKEN.unpack_from(data, at)
        digest = extend_digest(digest, (token_id,))
        if check != digest[:4]:
            break
        token_ids.append(token_id)
    return head, token_ids


def encode_token(token_id: int, digest: Digest) -> bytes:
    """Return the record of a token; `digest` is the running draft digest after it."""
    return _TOKEN.pack(token_id, digest[:4])
