"""The ends of a set of entries: those that no other of them follows (ORD-10).

Pure.
"""

from collections.abc import Container, Iterable

from replica.ids import EntryId
from replica.limits import PARENTS_MAX
from replica.log import Entry, Log, reach

NOWHERE = 1 << 64
"""A lamport above every other: a walk that ends there passes no entry."""


def ends(
    log: Log,
    found: Iterable[Entry],
    unreached: Container[EntryId] = (),
    needed: Container[EntryId] = (),
) -> tuple[EntryId, ...]:
    """Return the ids of those entries that no other of them follows, ascending: the last 64.

    `unreached` are the entries that no sealed request reaches, for a shorter walk. Those that
    are `needed` come before later ones.
    """
    found_ends = unfollowed(log, found, unreached)
    last = sorted((e.id in needed, e.order_key, e.id) for e in found_ends)
    return tuple(sorted(entry_id for _, _, entry_id in last[-PARENTS_MAX:]))


def unfollowed(log: Log, found: Iterable[Entry], unreached: Container[EntryId] = ()) -> list[Entry]:
    """Return the entries that no other of them follows."""
    turns = log.meter.turns
    entries = {entry.id: entry for entry in turns(found)}
    first = first_reached(turns(entries.values()), unreached)

    def follow(at: EntryId) -> tuple[EntryId, ...]:
        header = log.entries[at].header
        # The walk stops at any of them, whose own parents are walked from too, and below the
        # first. What follows an unreached entry is unreached, and few entries are.
        is_between = at not in entries and (at in unreached or header.lamport > first)
        return header.parents if is_between else ()

    starts = (p for e in turns(entries.values()) for p in e.header.parents)
    followed = reach(starts, follow, meter=log.meter)
    return [e for e in turns(entries.values()) if e.id not in followed]


def first_reached(entries: Iterable[Entry], unreached: Container[EntryId]) -> int:
    """Return the lamport of the first entry that is not unreached, NOWHERE without one."""
    return min((e.header.lamport for e in entries if e.id not in unreached), default=NOWHERE)
