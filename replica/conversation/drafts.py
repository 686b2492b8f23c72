"""Drafts: output streamed to readers before it is in the log (spec/04-link §6).

Each frame is signed by the host and carries the running digest of the token
stream, to which the generation commits. So a hub can't show output that was never
generated, and a late reader resumes at its offset.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.ids import ConversationId, Digest, EntryId, PublicKey, pae, tagged_sha256
from replica.limits import DRAFT_BYTES_MAX
from replica.log import verify

_FRAME_BYTES, _TOKEN_BYTES = 600, 40
"""Memory of a frame without tokens and data, and of each of its tokens at most."""

DRAFT_TAG = b"antiphon/v1/draft"
DRAFT_STREAM_TAG = b"antiphon/v1/draft-stream"


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a host before its first output token, in tokens."""

    prompt_tokens: int
    cached_tokens: int
    restored_tokens: int
    prefilled_tokens: int


@dataclass(frozen=True, slots=True)
class Draft:
    """One frame of streamed output, which is not yet in the log."""

    conversation: ConversationId
    request: EntryId
    run: int
    token_offset: int
    token_ids: Sequence[int]
    """A tuple where they were generated, TokenIds where they came from a peer."""
    byte_offset: int
    data: bytes
    digest: Digest
    signature: bytes = b""
    progress: Progress | None = None


def start_digest(request: EntryId, run: int) -> Digest:
    """Return the running digest before the first token."""
    return tagged_sha256(DRAFT_STREAM_TAG, request + run.to_bytes(8, "little"))


def extend_digest(digest: Digest, token_ids: Iterable[int]) -> Digest:
    """Extend a digest by token ids, one at a time, so that it is independent of framing."""
    for token_id in token_ids:
        digest = Digest(hashlib.sha256(digest + token_id.to_bytes(4, "little")).digest())
    return digest


def _signed_bytes(draft: Draft) -> bytes:
    fields = (
        draft.conversation,
        draft.request,
        draft.run.to_bytes(8, "little"),
        draft.token_offset.to_bytes(4, "little"),
        len(draft.token_ids).to_bytes(4, "little"),
        draft.byte_offset.to_bytes(4, "little"),
        hashlib.sha256(draft.data).digest(),
        draft.digest,
    )
    return pae(DRAFT_TAG, b"".join(fields))


def sign_draft(draft: Draft, key: Ed25519PrivateKey) -> Draft:
    """Return the draft with the host's signature; progress is not signed."""
    return replace(draft, signature=key.sign(_signed_bytes(draft)))


def verify_draft(draft: Draft, host: PublicKey) -> None:
    """Raise KeyInvalid or SignatureInvalid unless `host` signed this frame."""
    verify(host, draft.signature, _signed_bytes(draft))


@dataclass(slots=True)
class DraftStream:
    """The running draft of one request: its frames so far, in order."""

    conversation: ConversationId
    request: EntryId
    run: int
    frames: list[Draft] = field(default_factory=list)
    token_count: int = 0
    byte_count: int = 0
    digest: Digest = field(init=False)
    size_bytes: int = 0

    def __post_init__(self) -> None:
        """Start the running digest."""
        self.digest = start_digest(self.request, self.run)

    def receive(self, draft: Draft) -> bool:
        """Add the next frame; return False if it is old, leaves a gap or has a wrong digest."""
        if draft.token_offset != self.token_count or draft.byte_offset != self.byte_count:
            return False
        digest = extend_digest(self.digest, draft.token_ids)
        if digest != draft.digest:
            return False
        size = _FRAME_BYTES + len(draft.data) + _TOKEN_BYTES * len(draft.token_ids)
        if self.size_bytes + size > DRAFT_BYTES_MAX:
            return False
        if not draft.token_ids and not draft.data:
            if self.token_count or self.byte_count:
                return False
            # Progress before the first token: only the newest frame is kept.
            self.frames = [draft]
            return True
        if self.frames and not self.frames[0].token_ids and not self.frames[0].data:
            self.frames.clear()
        self.frames.append(draft)
        self.size_bytes += size
        self.token_count += len(draft.token_ids)
        self.byte_count += len(draft.data)
        self.digest = digest
        return True

    def frame_at(self, token_count: int, byte_count: int) -> Draft | None:
        """Return the frame that follows so many tokens and bytes, None at the end."""
        at = (token_count, byte_count)
        index = bisect_left(self.frames, at, key=lambda one: (one.token_offset, one.byte_offset))
        return self.frames[index] if index < len(self.frames) else None

    @property
    def memory_bytes(self) -> int:
        """The memory of the frames kept."""
        return max(_FRAME_BYTES, self.size_bytes)

    @property
    def data(self) -> bytes:
        """All visible bytes so far."""
        return b"".join(frame.data for frame in self.frames)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All token ids so far."""
        return tuple(i for frame in self.frames for i in frame.token_ids)
