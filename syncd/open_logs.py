"""The logs of conversations in memory, bounded together while they are open (LIM-14).

Pure. Unused conversations are evicted first (syncd/shelves/shelf.py). What is left is open on
links, and the creators whose logs occupy most lose theirs, the largest first.
"""

from math import inf

from replica.commits import Conversations
from replica.link import Fault
from replica.refusals import LogsTooLarge
from syncd.bounds import Accountant
from syncd.links import Connected, FanOut, HubEffects
from syncd.shelves import HubShelf


def release_logs(connected: Connected, shelf: HubShelf, busy: Conversations) -> HubEffects:
    """Close open conversations until the rest keeps the shelf's bound; evict them afterwards.

    `busy` ones stay: their entries are not durable yet, or a caller waits for them. Their
    members open them again after a pause.
    """
    bytes_max = shelf.bytes_max
    accountant = Accountant(holder_max=inf, key_max=inf, hub_max=bytes_max)
    out = FanOut(connected, shelf, 0.0)
    for conversation, held in shelf.items():
        if held.creator is not None:
            accountant.hold(conversation, held.creator, held.memory_bytes)
    gone = set(accountant.excess())
    for conversation in tuple(shelf):
        if conversation in gone and conversation not in busy:
            out.close(conversation, Fault.of(LogsTooLarge(), conversation))
    return out.build()
