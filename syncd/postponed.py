"""Links that are sent what is queued for them in later steps (spec/04-link §7, LINK-92).

Pure. An entry that many links read, or very many entries that few read, would hold up everybody
for as long as it takes to send them. So a step sends to some links, and the others follow, in
steps of their keys.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

from replica.ids import ConversationId, PublicKey

Waiting = TypeVar("Waiting")
Key = tuple[ConversationId, PublicKey]
"""The conversation and the key for which links wait."""


class Postponed(Generic[Waiting]):
    """Those that wait, each once per conversation; of one key the longest waiting first."""

    def __init__(self) -> None:
        """Start without any. None waits before `drive`."""
        self.is_driven = False
        self._of: dict[Key, OrderedDict[Waiting, None]] = {}
        self._new: list[Key] = []

    def drive(self) -> None:
        """Let links wait: somebody takes those that are new, and resumes them."""
        self.is_driven = True

    def add(self, key: Key, waiting: Waiting) -> None:
        """Let one wait."""
        if key not in self._of:
            self._of[key] = OrderedDict()
            self._new.append(key)
        self._of[key].setdefault(waiting)

    def take_new(self) -> list[Key]:
        """Return the keys of which none waited before, since this was called last."""
        new, self._new = self._new, []
        return new

    def first(self, key: Key) -> Waiting | None:
        """Return the first of a key; None if none waits."""
        return next(iter(self._of[key])) if key in self._of else None

    def drop(self, key: Key, waiting: Waiting) -> None:
        """Let one wait no longer."""
        if key in self._of:
            self._of[key].pop(waiting, None)
            if not self._of[key]:
                del self._of[key]
