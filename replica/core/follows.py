"""The conversations a replica follows, reads and opens again after a pause."""

from collections.abc import Iterable, Iterator

from replica.core import pauses
from replica.core.pauses import Pauses
from replica.ids import ConversationId


class Follows:
    """Followed conversations, with what each of them waits for."""

    def __init__(self) -> None:
        """Start with none."""
        self._drafts: dict[ConversationId, bool] = {}
        """Whether drafts are followed as well, by conversation."""
        self._pauses: dict[ConversationId, Pauses] = {}
        self._reopen_at: dict[ConversationId, float] = {}
        self._loading: set[ConversationId] = set()

    def __contains__(self, conversation: ConversationId) -> bool:
        """Say whether a conversation is followed."""
        return conversation in self._drafts

    def __iter__(self) -> Iterator[ConversationId]:
        """Iterate over the followed conversations, in the order they were added."""
        return iter(self._drafts)

    def drafts(self, conversation: ConversationId) -> bool | None:
        """Say whether a conversation is followed with its drafts; None where it is not followed."""
        return self._drafts.get(conversation)

    def add(self, conversation: ConversationId, *, drafts: bool) -> bool:
        """Follow a conversation; False where it already was, which changes nothing."""
        if conversation in self._drafts:
            return False
        self._drafts[conversation] = drafts
        return True

    def remove(self, conversation: ConversationId) -> bool:
        """Follow a conversation no longer; False where it was not."""
        self._reopen_at.pop(conversation, None)
        return self._drafts.pop(conversation, None) is not None

    # --- reading from the store ---------------------------------------------------------

    def begin_loads(self, conversations: Iterable[ConversationId]) -> tuple[ConversationId, ...]:
        """Return those to read now: the ones that are not being read already."""
        fresh = tuple(c for c in conversations if c not in self._loading)
        self._loading.update(fresh)
        return fresh

    def end_load(self, conversation: ConversationId) -> None:
        """Note that a conversation was read, or could not be."""
        self._loading.discard(conversation)

    # --- opening again ------------------------------------------------------------------

    def reopen_later(self, conversation: ConversationId, now: float) -> None:
        """Schedule another try for a followed conversation, any other is left alone.

        Its pause doubles until the conversation is in sync.
        """
        if conversation not in self._drafts:
            return
        if conversation not in self._pauses:
            self._pauses[conversation] = Pauses(pauses.REOPEN_FIRST_S, pauses.REOPEN_MAX_S)
        self._reopen_at[conversation] = now + self._pauses[conversation].next_s()

    def note_synchronized(self, conversation: ConversationId) -> None:
        """Let the next pause of a conversation be the shortest one again."""
        self._pauses.pop(conversation, None)

    def stop_reopening(self) -> None:
        """Cancel all tries: the next link opens what is followed."""
        self._reopen_at.clear()

    def due(self, now: float) -> tuple[ConversationId, ...]:
        """Return the conversations to open again by `now`; each is returned once per try."""
        due = tuple(c for c, at in self._reopen_at.items() if now >= at)
        for conversation in due:
            del self._reopen_at[conversation]
        return due

    @property
    def wake_at(self) -> float | None:
        """When the next try is due, on the caller's monotonic clock; None without one."""
        return min(self._reopen_at.values(), default=None)
