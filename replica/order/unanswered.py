"""The requests of a log that have neither an answer nor a refusal, in order(x).

Pure. Which of them are the latest must not depend on the order in which they came.
"""

from bisect import bisect_left
from collections.abc import Iterator

from replica.ids import EntryId
from replica.log import Entry


class Unanswered:
    """Requests sorted by (lamport, id); adding or removing one costs no pass over all."""

    def __init__(self) -> None:
        """Start empty."""
        self._keys: list[tuple[int, EntryId]] = []

    def __len__(self) -> int:
        """Return their number."""
        return len(self._keys)

    def add(self, request: Entry) -> None:
        """Add a request, if it is not among them."""
        at = self._index(request)
        if self._keys[at : at + 1] != [request.order_key]:
            self._keys.insert(at, request.order_key)

    def discard(self, request: Entry) -> None:
        """Remove a request, if it is among them."""
        at = self._index(request)
        if self._keys[at : at + 1] == [request.order_key]:
            del self._keys[at]

    def latest(self) -> Iterator[EntryId]:
        """Yield their ids, the last in order(x) first."""
        return (entry_id for _, entry_id in reversed(self._keys))

    def _index(self, request: Entry) -> int:
        return bisect_left(self._keys, request.order_key)
