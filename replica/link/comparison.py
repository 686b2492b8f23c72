"""Comparison of two logs of one conversation by their lane heads (spec/05-reconcile).

Pure. Lane heads suffice while lanes agree. Where one position holds different
entries, all ids are exchanged instead.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from replica.ids import EntryId, Position
from replica.log import Entry, Log


@dataclass(frozen=True, slots=True)
class HeadsVerdict:
    """The result of comparing a peer's heads with our log."""

    held: frozenset[EntryId]
    """Our entries that need not be sent to the peer, as far as its heads show.

    A guess where the peer is ahead on a lane, and never an ack.
    """
    wanted: frozenset[EntryId]
    """Heads of the peer that we lack."""
    diverged: tuple[Position, ...]
    """Peer heads at a position where we hold another entry."""


def compare_heads(log: Log, heads: Iterable[Position]) -> HeadsVerdict:
    """Compare a peer's heads with our lanes (spec/05-reconcile §2)."""
    held: set[EntryId] = set()
    wanted: set[EntryId] = set()
    diverged: list[Position] = []
    for head in heads:
        if head.id in log.entries:
            held |= lane_ancestors(log, head.id, held)
            continue
        wanted.add(head.id)
        if log.at(head.lane, head.seq):
            diverged.append(head)
            continue
        # The peer is ahead on this lane. If our part of it is not on its
        # chain, the peer sees that from our heads, and reports it.
        for tip in log.lane_tips(head.lane):
            held |= lane_ancestors(log, tip, held)
    return HeadsVerdict(frozenset(held), frozenset(wanted), tuple(diverged))


def lane_ancestors(log: Log, entry_id: EntryId, known: Iterable[EntryId]) -> set[EntryId]:
    """Return `entry_id` and its predecessors in its lane, down to the `known` ones."""
    known_ids = known if isinstance(known, (set, frozenset, dict)) else set(known)
    found: set[EntryId] = set()
    at: EntryId | None = entry_id
    while at is not None and at not in known_ids:
        found.add(at)
        at = log.entries[at].header.prev
    return found


def suffix(log: Log, held: Iterable[EntryId]) -> list[Entry]:
    """Return the entries that a peer which holds `held` lacks, in send order."""
    held_ids = set(held)
    return log.in_send_order(i for i in log.covered() if i not in held_ids)
