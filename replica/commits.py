"""Group commit: effects are performed once the entries before them are durable (spec/04-link §7).

Pure; replica/io/driver/performer.py drives it over a store, the simulator over a disk.
Work is queued in the order in which a core returned it. All queued work is made
durable in one commit and then performed in that order, so every visible effect
depends on durable entries alone (DECISIONS D75). A refused commit fails only the
work that depends on it (DECISIONS D76).
"""

from collections import Counter, deque
from collections.abc import Set
from dataclasses import dataclass
from typing import Generic, TypeVar

from replica.ids import ConversationId
from replica.log import Entry

Conversations = Set[ConversationId]

Payload = TypeVar("Payload")


@dataclass(frozen=True, slots=True)
class Work(Generic[Payload]):
    """Entries to persist, and the payload to perform once they are durable."""

    persist: tuple[Entry, ...]
    about: Conversations | None
    """The conversations that the payload concerns; None if it fails with any of them."""
    payload: Payload

    def fails_with(self, lost: Conversations) -> bool:
        """Say whether this work fails when entries of these conversations are lost."""
        if not lost:
            return False
        return bool(self.persist) or self.about is None or not lost.isdisjoint(self.about)


@dataclass(frozen=True, slots=True)
class Refused(Generic[Payload]):
    """A failed commit: the conversations that lost entries, and the work to perform regardless."""

    lost: Conversations
    """Conversations with entries in memory that are not on disk."""
    work: tuple[Work[Payload], ...]


class Commits(Generic[Payload]):
    """The queue between a core and its driver, with one commit at a time."""

    def __init__(self) -> None:
        """Start with nothing queued."""
        self._queued: deque[Work[Payload]] = deque()
        self._committing: tuple[Work[Payload], ...] = ()
        self._unwritten = Counter[ConversationId]()
        """Entries per conversation that are not durable yet."""

    def __len__(self) -> int:
        """Count work that is not performed yet."""
        return len(self._queued) + len(self._committing)

    @property
    def writing(self) -> Conversations:
        """The conversations with entries that are not durable yet: memory alone holds these."""
        return self._unwritten.keys()

    @property
    def has_entries(self) -> bool:
        """Whether the next commit will write anything."""
        return any(work.persist for work in self._queued)

    def submit(self, work: Work[Payload]) -> None:
        """Queue work behind all other work."""
        self._queued.append(work)
        self._unwritten.update(entry.conversation for entry in work.persist)

    def begin(self) -> tuple[Entry, ...]:
        """Begin one commit of all queued work; return its entries, which may be none.

        `complete`, `refuse` or `put_back` ends the commit.
        """
        assert not self._committing, "one commit at a time"
        self._committing = tuple(self._queued)
        self._queued.clear()
        return tuple(entry for work in self._committing for entry in work.persist)

    def complete(self) -> tuple[Work[Payload], ...]:
        """End a durable commit; return its work, to perform in this order."""
        done, self._committing = self._committing, ()
        for one in done:
            for entry in one.persist:
                self._unwritten[entry.conversation] -= 1
                if not self._unwritten[entry.conversation]:
                    del self._unwritten[entry.conversation]
        return done

    def put_back(self) -> None:
        """Queue the work of a commit again, before all other work: its outcome is not known."""
        self._queued.extendleft(reversed(self._committing))
        self._committing = ()

    def refuse(self) -> Refused[Payload]:
        """End a failed commit, with the work queued since: that may depend on lost entries."""
        lost = frozenset(self._unwritten)
        return Refused(lost, self.abandon())

    def abandon(self) -> tuple[Work[Payload], ...]:
        """Return all work, committing or queued, and forget it."""
        work = (*self._committing, *self._queued)
        self._committing = ()
        self._queued.clear()
        self._unwritten.clear()
        return work
