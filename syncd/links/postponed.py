"""Links that are sent what is queued for them in later steps (spec/04-link §7, LINK-92).

Pure. An entry that many links read, or very many entries that few read, would hold up everybody
for as long as it takes to send them. So a step sends to some links, and the others follow, in
steps of their keys. What a waiting link is offered is kept here until then: to queue it at
thousands of links takes long, too.
"""

from collections import OrderedDict
from itertools import chain
from typing import Generic, TypeVar

from replica.ids import ConversationId, EntryId, PublicKey

Waiting = TypeVar("Waiting")
Key = tuple[ConversationId, PublicKey]
"""The conversation and the key for which links wait."""
_Offered = tuple["_Offered | None", tuple[EntryId, ...]]
"""What was offered before, and the last ids: each offer is one step, however many came before."""


class Postponed(Generic[Waiting]):
    """Those that wait, each once per conversation; of one key the longest waiting first."""

    def __init__(self) -> None:
        """Start without any. None waits before `drive`."""
        self.is_driven = False
        self._of: dict[Key, OrderedDict[Waiting, _Offered | None]] = {}
        self._by_peer: dict[PublicKey, set[ConversationId]] = {}
        self._new: list[Key] = []

    def drive(self) -> None:
        """Let links wait: somebody takes those that are new, and resumes them."""
        self.is_driven = True

    def add(self, key: Key, waiting: Waiting, offered: tuple[EntryId, ...] = ()) -> None:
        """Let one wait, to be offered these ids behind those of before."""
        of = self._of.get(key)
        if of is None:
            of = self._of[key] = OrderedDict()
            self._by_peer.setdefault(key[1], set()).add(key[0])
            self._new.append(key)
        if offered:
            of[waiting] = (of.get(waiting), offered)
        else:
            of.setdefault(waiting)

    def has(self, key: Key, waiting: Waiting) -> bool:
        """Say whether one waits."""
        return key in self._of and waiting in self._of[key]

    def take_offered(self, key: Key, waiting: Waiting) -> tuple[EntryId, ...]:
        """Return what one that waits is offered, once; it goes on waiting."""
        of = self._of.get(key)
        step = of.get(waiting) if of is not None else None
        if of is None or step is None:
            return ()
        of[waiting] = None
        parts = list[tuple[EntryId, ...]]()
        while step is not None:
            step, ids = step
            parts.append(ids)
        # Many links share one long sequence.
        return parts[0] if len(parts) == 1 else tuple(chain.from_iterable(reversed(parts)))

    def conversations(self, peer: PublicKey) -> list[ConversationId]:
        """Return the conversations for which links of a key wait."""
        return list(self._by_peer.get(peer, ()))

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
                self._end(key)

    def _end(self, key: Key) -> None:
        conversation, peer = key
        del self._of[key]
        self._by_peer[peer].discard(conversation)
        if not self._by_peer[peer]:
            del self._by_peer[peer]
