"""The conversations of a hub whose folds pause (spec/04-link §7, LINK-92).

Pure. One change of the membership may concern every entry of a log. Its fold takes pauses, in
which the hub serves others. Meanwhile the conversation is between two states, so it is not
on the shelf: whoever may be a member waits, and nobody else learns that it is here.
"""

from collections.abc import Callable, Iterable, Mapping, Set

from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, PublicKey


class Folding:
    """The conversations that are between two states, with what waits for the end of a fold."""

    def __init__(self, on_shelf: dict[ConversationId, Conversation]) -> None:
        """Start without any; those that pause leave `on_shelf`. None does before `drive`."""
        self._pause: Callable[[Conversation], None] | None = None
        self._is_due: Callable[[], bool] = bool
        self._on_shelf = on_shelf
        self._held: dict[ConversationId, Conversation] = {}
        self.held: Mapping[ConversationId, Conversation] = self._held
        """Those that pause now."""
        self._lost: set[ConversationId] = set()
        self.lost: Set[ConversationId] = self._lost
        """Those of which the disk refused entries while their folds paused."""
        self._to_drop: dict[ConversationId, list[EntryId]] = {}

    def drive(self, is_due: Callable[[], bool], pause: Callable[[Conversation], None]) -> None:
        """Let folds pause where it `is_due`, as long as `pause` takes."""
        self._is_due, self._pause = is_due, pause

    def pause(self, conversation: ConversationId) -> None:
        """Let the fold of a conversation on the shelf pause, if it is due."""
        held = self._on_shelf.get(conversation)
        if held is None or self._pause is None or not self._is_due():
            return
        del self._on_shelf[conversation]
        self._held[conversation] = held
        try:
            self._pause(held)
        finally:
            del self._held[conversation]
        self._on_shelf[conversation] = held

    def may_know(self, conversation: ConversationId, peer: PublicKey) -> bool:
        """Say whether a key waits for the end of a fold: it was granted a role at some time."""
        held = self._held.get(conversation)
        return held is not None and peer in held.log.admission.granted

    def lose(self, conversation: ConversationId) -> bool:
        """Note that the disk refused entries of a conversation; False if its fold doesn't pause."""
        if conversation not in self._held:
            return False
        self._lost.add(conversation)
        return True

    def drop_later(self, conversation: ConversationId, ids: Iterable[EntryId]) -> bool:
        """Drop pending entries once the fold ends; False if it doesn't pause."""
        if conversation not in self._held:
            return False
        self._to_drop.setdefault(conversation, []).extend(ids)
        return True

    def end(self, held: Conversation) -> bool:
        """End a fold that paused: drop what waited for it. Say whether the disk refused entries."""
        held.log.admission.drop(self._to_drop.pop(held.id, ()))
        is_lost = held.id in self._lost
        self._lost.discard(held.id)
        return is_lost
