"""The conversations that a replica follows: their loads, and the tries to open them again.

A closed conversation is opened again after growing pauses (DECISIONS D30).
"""

from collections.abc import Iterable, Iterator

from replica.core import pauses
from replica.core.pauses import Pauses
from replica.ids import ConversationId


class Follows:
    """Followed conversations, with their loads in progress and their next tries."""

    def __init__(self) -> None:
        """Start with none."""
        self._drafts: dict[ConversationId, bool] = {}
        """By conversation, whether its drafts are followed too."""
        self._pauses: dict[ConversationId, Pauses] = {}
        self._reopen_at: dict[ConversationId, float] = {}
        self._loading: set[ConversationId] = set()

    def __contains__(self, conversation: ConversationId) -> bool:
        """Say whether a conversation is followed."""
        return conversation in self._drafts

    def __len__(self) -> int:
        """Count the followed conversations."""
        return len(self._drafts)

    def __iter__(self) -> Iterator[ConversationId]:
        """Iterate over the followed conversations, in the order they were added."""
        return iter(self._drafts)

    def drafts(self, conversation: ConversationId) -> bool | None:
        """Say whether drafts of a conversation are followed; None if it is not followed."""
        return self._drafts.get(conversation)

    def add(self, conversation: ConversationId, *, drafts: bool) -> bool:
        """Follow a conversation; return False and change nothing if it already is followed."""
        if conversation in self._drafts:
            return False
        self._drafts[conversation] = drafts
        return True

    def remove(self, conversation: ConversationId) -> bool:
        """Stop following a conversation; return False if it was not followed."""
        self._reopen_at.pop(conversation, None)
        self._pauses.pop(conversation, None)
        return self._drafts.pop(conversation, None) is not None

    # --- reading from the store ---------------------------------------------------------

    def begin_loads(self, conversations: Iterable[ConversationId]) -> tuple[ConversationId, ...]:
        """Return the conversations to read now, without those already being read."""
        fresh = tuple(c for c in conversations if c not in self._loading)
        self._loading.update(fresh)
        return fresh

    def is_loading(self, conversation: ConversationId) -> bool:
        """Say whether a conversation is being read."""
        return conversation in self._loading

    def end_load(self, conversation: ConversationId) -> None:
        """Note that reading a conversation ended, successfully or not."""
        self._loading.discard(conversation)

    # --- opening again ------------------------------------------------------------------

    def reopen_later(self, conversation: ConversationId, now: float) -> None:
        """Schedule another try for a conversation; do nothing if it is not followed.

        The pause doubles until the conversation is synchronized.
        """
        if conversation not in self._drafts:
            return
        if conversation not in self._pauses:
            self._pauses[conversation] = Pauses(pauses.REOPEN_FIRST_S, pauses.REOPEN_MAX_S)
        self._reopen_at[conversation] = now + self._pauses[conversation].next_s()

    def note_synchronized(self, conversation: ConversationId) -> None:
        """Reset the next pause of a conversation to the first one."""
        self._pauses.pop(conversation, None)

    def stop_reopening(self) -> None:
        """Cancel all tries; the next link opens every followed conversation."""
        self._reopen_at.clear()

    def due(self, now: float) -> tuple[ConversationId, ...]:
        """Return the conversations due at `now`; each is returned once per try."""
        due = tuple(c for c, at in self._reopen_at.items() if now >= at)
        for conversation in due:
            del self._reopen_at[conversation]
        return due

    @property
    def wake_at(self) -> float | None:
        """Time of the next try on the caller's monotonic clock; None without one."""
        return min(self._reopen_at.values(), default=None)
