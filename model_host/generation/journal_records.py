"""The records of a journal (spec/07-host §4 step 5). Pure.

    head    magic, request, seal, run, profile, numerics class, check     152 bytes
    token   id as 4 bytes little-endian, check, log probabilities where the request asks for them

The check of the head is the first 8 bytes of its SHA-256, since a run that resumed under
a damaged head would be another one. The check of a token distinguishes it from bytes that
a power loss may leave: zeros, or earlier content of the file. It is the first 4 bytes of
the running draft digest; with log probabilities, of SHA-256(running draft digest ‖ log
probabilities).
"""

import hashlib
import struct
from dataclasses import dataclass

from model_host.sampling import Choice
from replica.conversation import extend_digest, start_digest
from replica.ids import Digest, EntryId
from replica.limits import BODY_BYTES_MAX
from replica.log import TokenLogprobs

_HEAD = struct.Struct("<8s32s32sQ32s32s")
_TOKEN = struct.Struct("<I4s")
_MAGIC = b"AJRNL03\n"
_HEAD_CHECK_BYTES = 8

HEAD_BYTES = _HEAD.size + _HEAD_CHECK_BYTES
TOKEN_BYTES = _TOKEN.size
"""Bytes of a token's record without log probabilities."""
JOURNAL_BYTES_MAX = HEAD_BYTES + 2 * BODY_BYTES_MAX
"""More than a journal has: no record takes twice the bytes that its token has in the answer."""
_ID_BYTES, _FLOAT_BYTES = 4, 4


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
        head = _HEAD.pack(
            _MAGIC, self.request, self.seal, self.run, self.profile, self.numerics_class
        )
        return head + _head_check(head)

    @property
    def digest(self) -> Digest:
        """The running draft digest before the first token."""
        return start_digest(self.request, self.run)


def token_bytes(logprobs: int) -> int:
    """Return the size of a token's record, for requests with so many `logprobs`."""
    return TOKEN_BYTES + (_FLOAT_BYTES + logprobs * (_ID_BYTES + _FLOAT_BYTES) if logprobs else 0)


def decode_journal(data: bytes, logprobs: int = 0) -> tuple[JournalHead, list[Choice]] | None:
    """Return head and tokens; None if the head is cut off, damaged or of another format.

    `logprobs` is the number that the request asks for. The journal ends before the first
    token record that is torn or has a wrong check.
    """
    if len(data) < HEAD_BYTES or not data.startswith(_MAGIC):
        return None
    if data[_HEAD.size : HEAD_BYTES] != _head_check(data[: _HEAD.size]):
        return None
    _, request, seal, run, profile, numerics = _HEAD.unpack_from(data)
    head = JournalHead(EntryId(request), EntryId(seal), run, Digest(profile), Digest(numerics))
    choices: list[Choice] = []
    digest, size = head.digest, token_bytes(logprobs)
    for at in range(HEAD_BYTES, len(data) - size + 1, size):
        token_id, check = _TOKEN.unpack_from(data, at)
        recorded = data[at + TOKEN_BYTES : at + size]
        digest = extend_digest(digest, (token_id,))
        if check != _check(digest, recorded):
            break
        choices.append(Choice(token_id, _decode_logprobs(recorded)))
    return head, choices


def encode_token(choice: Choice, digest: Digest) -> bytes:
    """Return the record of a token; `digest` is the running draft digest after it."""
    recorded = _encode_logprobs(choice.logprobs)
    return _TOKEN.pack(choice.token_id, _check(digest, recorded)) + recorded


def _head_check(head: bytes) -> bytes:
    return hashlib.sha256(head).digest()[:_HEAD_CHECK_BYTES]


def _check(digest: Digest, recorded: bytes) -> bytes:
    return (hashlib.sha256(digest + recorded).digest() if recorded else digest)[:4]


def _encode_logprobs(logprobs: TokenLogprobs | None) -> bytes:
    if logprobs is None:
        return b""
    count = len(logprobs.top_ids)
    numbers = (logprobs.logprob, *logprobs.top_ids, *logprobs.top_logprobs)
    return struct.pack(f"<f{count}I{count}f", *numbers)


def _decode_logprobs(recorded: bytes) -> TokenLogprobs | None:
    if not recorded:
        return None
    count = (len(recorded) - _FLOAT_BYTES) // (_ID_BYTES + _FLOAT_BYTES)
    own, *numbers = struct.unpack(f"<f{count}I{count}f", recorded)
    return TokenLogprobs(own, tuple(numbers[:count]), tuple(numbers[count:]))
