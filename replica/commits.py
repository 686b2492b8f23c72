"""Group commit: which effects wait, and which rest on which (spec/04-link §7).

Pure; replica/io/performer.py drives it over a store, the simulator over a disk.
Work is queued in the order in which a core returned it. All that waits is made
durable together and performed afterwards in that order, so whatever shows in
the world rests on what is durable.
"""

from collections import deque
from collections.abc import Set
from dataclasses import dataclass
from typing import Generic, TypeVar

from replica.ids import ConversationId
from replica.log import Entry

Conversations = Set[ConversationId]

Payload = TypeVar("Payload")


@dataclass(frozen=True, slots=True)
class Work(Generic[Payload]):
    """Entries to persist, and what to do once they are durable."""

    persist: tuple[Entry, ...]
    about: Conversations | None
    """The conversations it speaks of; None: it fails with any of them."""
    payload: Payload

    def fails_with(self, lost: Conversations) -> bool:
        """Say whether losing something of these conversations is this work's failure."""
        if not lost:
            return False
        return bool(self.persist) or self.about is None or not lost.isdisjoint(self.about)


@dataclass(frozen=True, slots=True)
class Refused(Generic[Payload]):
    """A commit the disk refused: what is lost, and all work to perform without that."""

    lost: Conversations
    """Conversations of which memory believes more than the disk holds."""
    work: tuple[Work[Payload], ...]


class Commits(Generic[Payload]):
    """The queue between a core and the world, one commit at a time."""

    def __init__(self) -> None:
        """Start with nothing queued."""
        self._waiting: deque[Work[Payload]] = deque()
        self._committing: tuple[Work[Payload], ...] = ()

    def __len__(self) -> int:
        """Count work that is not performed yet."""
        return len(self._waiting) + len(self._committing)

    @property
    def writing(self) -> Conversations:
        """The conversations with entries that are not durable yet: memory alone holds these."""
        work = (*self._committing, *self._waiting)
        return {entry.conversation for one in work for entry in one.persist}

    def submit(self, work: Work[Payload]) -> None:
        """Queue work behind all that is queued."""
        self._waiting.append(work)

    def begin(self) -> tuple[Entry, ...]:
        """Take all that waits into one commit; return its entries, which may be none.

        `complete` or `refuse` ends the commit.
        """
        assert not self._committing, "one commit at a time"
        self._committing = tuple(self._waiting)
        self._waiting.clear()
        return tuple(entry for work in self._committing for entry in work.persist)

    def complete(self) -> tuple[Work[Payload], ...]:
        """Return the work of a commit that is durable, to perform in this order."""
        done, self._committing = self._committing, ()
        return done

    def refuse(self) -> Refused[Payload]:
        """Give up a commit, and what was queued meanwhile: it may rest on what is lost."""
        work = self.abandon()
        return Refused({entry.conversation for one in work for entry in one.persist}, work)

    def abandon(self) -> tuple[Work[Payload], ...]:
        """Return all work, committing or waiting, and forget it."""
        work = (*self._committing, *self._waiting)
        self._committing = ()
        self._waiting.clear()
        return work
