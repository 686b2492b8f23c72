"""The entries before a place that no seal of its branch lists yet (spec/03-order §3). Pure."""

from replica.conversation.conversation import Conversation
from replica.conversation.place import Place, forks_at, goes_behind
from replica.ids import EntryId, Track
from replica.log import Entry, Kind, reach
from replica.order import is_withdrawal, is_withdrawn


def unlisted_before(held: Conversation, place: Place) -> list[Entry]:
    """Return the entries that an entry at a place follows, in order, without those of the chain.

    The answer of the seal ahead comes first, as a seal lists it. Messages that were withdrawn are
    left out, with the CANCELs that do it.
    """
    log, node = held.log, goes_behind(held, place)

    def is_passed_over(entry_id: EntryId) -> bool:
        header = log.entries[entry_id].header
        on_track = header.track == Track.CONVERSATION and header.kind != Kind.SEAL
        return not on_track or (node is not None and node.covers(entry_id))

    behind = reach(place.parents, lambda i: log.entries[i].header.parents, is_passed_over)
    answer = node.generation if node is not None else None
    if answer is not None and not forks_at(held, place):
        # What was asked before it came, and was refused or cancelled, does not follow it.
        behind.add(answer)
    found = (e for e in map(log.entries.__getitem__, behind) if not is_withdrawal(log, e))
    found = (e for e in found if not is_withdrawn(held.order, e.id))
    return sorted(found, key=lambda e: (e.id != answer, *e.order_key))
