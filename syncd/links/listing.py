"""What is left of the list of a follower's conversations (spec/04-link, LINK-94).

Pure. Anybody may grant a role to any key, so a list is as long as others like. It is ordered
as it is sent, since sorting it all would be a long step, and is part of what its link occupies.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop
from itertools import chain

from replica.conversation import hosts_awaited
from replica.ids import ConversationId, PublicKey
from replica.link import ListingItem
from syncd.shelves import HubShelf

_ITEM_BYTES = 8


class RestOfList(Iterator[ConversationId]):
    """Conversations still to be listed: those that wait for the follower first, then by id.

    One that waits may come again among the others: whoever lists them lists each once.
    """

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

    @property
    def memory_bytes(self) -> int:
        """The memory of what is left, about; the ids are those of the shelf."""
        return _ITEM_BYTES * len(self)


def list_of(shelf: HubShelf, peer: PublicKey) -> RestOfList:
    """Return the list of a member's conversations; `item_of` says which items are its own."""
    held = [c for c, one in shelf.items() if one.is_member(peer)]
    waiting = [c for c in held if peer in hosts_awaited(shelf[c])]
    first = chain(waiting, shelf.apart.awaiting.get(peer, ()))
    return RestOfList(first, chain(held, shelf.apart.of.get(peer, ())))


def item_of(shelf: HubShelf, conversation: ConversationId, peer: PublicKey) -> ListingItem | None:
    """Return the item of a list for a member; None for any other key."""
    held, known = shelf.get(conversation), shelf.apart.all.get(conversation)
    if held is not None and held.is_member(peer):
        awaited = peer in hosts_awaited(held)
        return ListingItem(conversation, held.creator, awaited)
    if held is None and known is not None and peer in known.members:
        awaited = peer in known.awaiting
        return ListingItem(conversation, known.creator, awaited)
    return None
