"""What is left of the list of a follower's conversations (spec/04-link, LINK-94).

Pure. Anybody may grant a role to any key, so a list is as long as others like. It is ordered
as it is sent, since sorting it all would be a long step.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop

from replica.ids import ConversationId


class RestOfList(Iterator[ConversationId]):
    """Conversations still to be listed: those that wait for the follower first, then by id."""

    def __init__(self, first: Iterable[ConversationId], others: Iterable[ConversationId]) -> None:
        """Start with all of them; `first` are those with a request for the follower."""
        self._parts = [list(first), list(others)]
        for part in self._parts:
            heapify(part)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[ConversationId]:
        return self

    def __next__(self) -> ConversationId:
        """Remove and return the next one."""
        for part in self._parts:
            if part:
                return heappop(part)
        raise StopIteration
