"""The entries that are being appended, so that a store's mark counts each of them once.

Pure. Processes that share a store append what each of them receives.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from replica.ids import EntryId
from replica.log import Entry


class Appending:
    """The ids of entries whose appends have begun."""

    def __init__(self) -> None:
        """Start without any."""
        self._ids: set[EntryId] = set()

    @contextmanager
    def new_of(self, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
        """Hold the entries that no other append has begun with, while the block runs."""
        new = [entry for entry in entries if entry.id not in self._ids]
        ids = {entry.id for entry in new}
        self._ids |= ids
        try:
            yield new
        finally:
            self._ids -= ids
