"""The listed conversations that somebody asks for, by creator: creators take turns. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

from replica.core.open_listed import Creator
from replica.ids import ConversationId


class Asked:
    """Conversations that are asked for, the creators in the order of their turns."""

    def __init__(self) -> None:
        """Start with none."""
        self._of: dict[Creator, dict[ConversationId, None]] = {}
        self._with: defaultdict[int, dict[Creator, None]] = defaultdict(dict)
        """The creators by how many of theirs are asked for."""
        self._most = 0
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def __bool__(self) -> bool:
        return bool(self._of)

    def creators(self, count: int) -> tuple[Creator, ...]:
        """Return those whose turn is next."""
        return tuple(islice(self._of, count))

    def of(self, creator: Creator) -> Iterator[ConversationId]:
        """Yield those of a creator, the first one that was asked for first."""
        return iter(self._of.get(creator, ()))

    def add(self, creator: Creator, conversation: ConversationId) -> None:
        """Note that a conversation is asked for; do nothing if it is already."""
        held = self._of.setdefault(creator, {})
        if conversation not in held:
            held[conversation] = None
            self._count(creator, len(held) - 1, len(held))

    def discard(self, creator: Creator, conversation: ConversationId) -> None:
        """Remove a conversation, if it is asked for."""
        held = self._of.get(creator, {})
        if conversation in held:
            del held[conversation]
            self._count(creator, len(held) + 1, len(held))

    def move_back(self, creator: Creator) -> None:
        """Let all other creators have their turn first; do nothing if nothing of it is left."""
        if creator in self._of:
            self._of[creator] = self._of.pop(creator)

    def take_latest(self, than: Creator) -> ConversationId | None:
        """Remove and return the latest one of a creator with most; None if `than` has as many."""
        if self._most <= len(self._of.get(than, ())) + 1:
            return None
        creator = next(iter(self._with[self._most]))
        latest = next(reversed(self._of[creator]))
        self.discard(creator, latest)
        return latest

    def clear(self) -> None:
        """Forget all."""
        self._of.clear()
        self._with.clear()
        self._most = self._total = 0

    def _count(self, creator: Creator, before: int, now: int) -> None:
        self._total += now - before
        self._with[before].pop(creator, None)
        if not self._with[before]:
            del self._with[before]
        if now:
            self._with[now][creator] = None
        else:
            del self._of[creator]
        self._most = max(self._most, now)
        while self._most and self._most not in self._with:
            self._most -= 1  # by one at most: each change is by one
