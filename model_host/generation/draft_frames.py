"""The drafts of one run: the frames that its readers are sent (spec/07-host §4, spec/04-link §6).

Pure. A frame carries the tokens gathered since the one before. After a crash all tokens are
framed singly: wherever the draft of a reader ends, one of these frames begins.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from model_host.sampling import Choice
from replica.conversation import Draft, Progress, extend_digest, start_digest
from replica.ids import ConversationId, Digest, EntryId
from replica.log import Usage


class DraftFrames:
    """The frames of a run, and the tokens that are in none yet."""

    def __init__(
        self,
        conversation: ConversationId,
        request: EntryId,
        run: int,
        sign: Callable[[Draft], Draft],
    ) -> None:
        """Start without tokens; `sign` adds the host's signature, once per frame."""
        self.frames: list[Draft] = []
        self._sign = sign
        self._gathered: list[Choice] = []
        self._gathered_bytes = bytearray()
        self._next = Draft(conversation, request, run, 0, (), 0, b"", start_digest(request, run))

    @property
    def digest(self) -> Digest:
        """The running digest of the tokens that are in frames."""
        return self._next.digest

    @property
    def gathered(self) -> Sequence[Choice]:
        """The tokens that are in no frame yet; they are journaled before `take` (HOST-15)."""
        return self._gathered

    def add(self, choice: Choice, shown: bytes) -> None:
        """Gather a token with the bytes that it makes visible."""
        self._gathered.append(choice)
        self._gathered_bytes += shown

    def take(self) -> Draft:
        """Return a frame of the tokens gathered, at least one."""
        assert self._gathered, "a frame has tokens"
        ids = tuple(choice.token_id for choice in self._gathered)
        shown, at = bytes(self._gathered_bytes), self._next
        digest = extend_digest(at.digest, ids)
        frame = self._sign(replace(at, token_ids=ids, data=shown, digest=digest))
        self._next = replace(
            at,
            token_offset=at.token_offset + len(ids),
            byte_offset=at.byte_offset + len(shown),
            digest=digest,
        )
        self._gathered.clear()
        self._gathered_bytes.clear()
        self.frames.append(frame)
        return frame

    def progress(self, prompt_tokens: int, found: Usage, prefilled: int) -> Draft:
        """Return the frame with the progress of the prompt; it is not kept."""
        done = Progress(prompt_tokens, found.cached_tokens, found.restored_tokens, prefilled)
        return self._sign(replace(self._next, progress=done))
