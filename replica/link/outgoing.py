"""The ids of entries that are queued for sending on one channel, in order (spec/04-link §5).

Pure, and private to this package. Single ids are queued once. Of many entries that are offered to
all readers at once, as those that a grant makes covered, the readers share one sequence.
"""

from collections import deque
from collections.abc import Iterator
from operator import length_hint

from replica.ids import EntryId

_SINGLE_BYTES, _SHARED_BYTES = 160, 8
"""Memory of an id in a set and a queue, and of one in a sequence."""


class Outgoing:
    """A queue of ids."""

    def __init__(self) -> None:
        """Start empty."""
        self._shared: deque[Iterator[EntryId]] = deque()
        self.single: deque[EntryId] = deque()
        """Those that come after the shared ones."""
        self._known: set[EntryId] = set()
        """The single ones."""
        self._count = 0

    def __len__(self) -> int:
        """Count the ids."""
        return self._count

    def __contains__(self, entry_id: object) -> bool:
        """Say whether an id is queued by itself."""
        return entry_id in self._known

    @property
    def memory_bytes(self) -> int:
        """The memory of the queue, about; a sequence counts for each that has it."""
        shared = len(self) - len(self.single)
        return _SINGLE_BYTES * len(self.single) + _SHARED_BYTES * shared

    @property
    def is_long(self) -> bool:
        """Say whether a sequence is among what is queued."""
        return bool(self._shared)

    def add(self, entry_id: EntryId) -> None:
        """Queue an id, unless it is queued by itself."""
        if entry_id not in self._known:
            self._known.add(entry_id)
            self.single.append(entry_id)
            self._count += 1

    def share(self, ids: tuple[EntryId, ...]) -> None:
        """Queue a sequence, which is kept as it is."""
        for sequence in (tuple(self.single), ids):
            if sequence:
                self._shared.append(iter(sequence))
        self.single.clear()
        self._known.clear()
        self._count += len(ids)

    def pop(self) -> EntryId:
        """Take the first id. Raises IndexError if there is none."""
        if not self._shared:
            entry_id = self.single.popleft()
            self._known.discard(entry_id)
            self._count -= 1
            return entry_id
        self._count -= 1
        entry_id = next(self._shared[0])
        if not length_hint(self._shared[0]):
            self._shared.popleft()
        return entry_id
