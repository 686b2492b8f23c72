"""Comparison of two logs of one conversation by their lane heads (spec/05-reconcile).

Pure. Lane heads suffice while lanes agree. Where one position holds different
entries, all ids are exchanged instead.
"""

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice

from replica import limits
from replica.ids import EntryId, Lane, Position
from replica.link.steps import STEP_HEADS, Steps, finished
from replica.log import MEMBERSHIP_TRACKS, Entry, Log


class HeldLanes(Set[EntryId]):
    """Entries of a log that a peer holds: lanes up to a seq, and single ones behind forks."""

    def __init__(self, log: Log) -> None:
        """Start with none of `log`."""
        self._log = log
        self._up_to: dict[Lane, int] = {}
        self._more: set[EntryId] = set()

    @classmethod
    def _from_iterable(cls, it: Iterable[EntryId]) -> set[EntryId]:  # type: ignore[override]
        return set(it)

    def add_chain(self, entry_id: EntryId) -> None:
        """Add an admitted entry and its predecessors in its lane."""
        header = self._log.entries[entry_id].header
        fork = self._log.lane_fork(header.lane)
        if fork is None or header.seq < fork:
            self._add_up_to(header.lane, header.seq)
            return
        self._add_up_to(header.lane, fork - 1)
        at: EntryId | None = entry_id
        while at is not None and at not in self:
            self._more.add(at)
            at = self._log.entries[at].header.prev

    def add_lane(self, lane: Lane) -> None:
        """Add all entries of a lane."""
        self._add_up_to(lane, self._log.lane_length(lane) - 1)

    def drop(self, entry: Entry) -> None:
        """Take an entry as not held, and those behind it in its lane."""
        lane, seq = entry.header.lane, entry.header.seq
        if self.next_seq(lane) > seq:
            self._up_to[lane] = seq - 1

    def _add_up_to(self, lane: Lane, seq: int) -> None:
        self._up_to[lane] = max(seq, self._up_to.get(lane, -1))

    def next_seq(self, lane: Lane) -> int:
        """Return the first seq of a lane of which not all entries are known to be held."""
        return self._up_to.get(lane, -1) + 1

    def __contains__(self, entry_id: object) -> bool:
        """Say whether the peer holds an entry."""
        if entry_id in self._more:
            return True
        entry = self._log.entries.get(entry_id)  # type: ignore[call-overload]  # any object
        return entry is not None and entry.header.seq <= self._up_to.get(entry.header.lane, -1)

    def __iter__(self) -> Iterator[EntryId]:
        """Iterate over the ids."""
        for lane, last in self._up_to.items():
            for seq in range(last + 1):
                yield from self._log.at(lane, seq)
        yield from (i for i in self._more if self._is_beyond(i))

    def _is_beyond(self, entry_id: EntryId) -> bool:
        header = self._log.entries[entry_id].header
        return header.seq > self._up_to.get(header.lane, -1)

    def __len__(self) -> int:
        """Count the ids."""
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class HeadsVerdict:
    """The result of comparing a peer's heads with our log."""

    held: HeldLanes
    """Our entries that need not be sent to the peer, as far as its heads show.

    A guess where the peer is ahead on a lane, and never an ack.
    """
    wanted: frozenset[EntryId]
    """Heads of the peer that we lack."""
    diverged: tuple[Position, ...]
    """Peer heads at a position where we hold another entry."""
    fronts: "Fronts | None" = None
    """Where the entries not held begin, if that was looked for in steps."""


def sendable_heads(log: Log) -> tuple[Position, ...] | None:
    """Return the heads of the covered lanes; None where they are too many for a frame (REC-6)."""
    heads = log.heads()
    return heads if len(heads) <= limits.HEADS_PER_FRAME_MAX else None


def compare_heads(log: Log, heads: Iterable[Position]) -> HeadsVerdict:
    """Compare a peer's heads with our lanes (spec/05-reconcile §2)."""
    return finished(compare_steps(log, heads))


def compare_steps(log: Log, heads: Iterable[Position]) -> Steps[HeadsVerdict]:
    """Compare as `compare_heads` does, in steps of some milliseconds.

    Entries that are admitted between them count as not held by the peer.
    """
    held, known = HeldLanes(log), len(log.entries)
    wanted: set[EntryId] = set()
    diverged: list[Position] = []
    for index, head in enumerate(heads, 1):
        if index % STEP_HEADS == 0:
            yield
        if head.id in log.entries:
            held.add_chain(head.id)
            continue
        wanted.add(head.id)
        if log.at(head.lane, head.seq):
            diverged.append(head)
            continue
        # The peer is ahead on this lane. If our part of it is not on its
        # chain, the peer sees that from our heads, and reports it.
        held.add_lane(head.lane)
    for entry in islice(reversed(log.entries.values()), len(log.entries) - known):
        held.drop(entry)  # it may have forked a lane that was looked at before
    return HeadsVerdict(held, frozenset(wanted), tuple(diverged))


class Compared:
    """A comparison that was made in steps, before the message with the heads is received."""

    def __init__(self) -> None:
        """Start without any."""
        self._last: tuple[Log, tuple[Position, ...], HeadsVerdict] | None = None

    def steps(self, log: Log, heads: tuple[Position, ...]) -> Steps[None]:
        """Compare, and keep the result with where begins what the peer lacks."""
        verdict = yield from compare_steps(log, heads)
        fronts = (yield from front_steps(log, verdict.held)) if not verdict.diverged else None
        self._last = log, heads, replace(verdict, fronts=fronts)

    def verdict(self, log: Log, heads: tuple[Position, ...]) -> HeadsVerdict:
        """Return the result that was kept for these very heads and this log, else compare."""
        if self._last is not None and self._last[0] is log and self._last[1] is heads:
            return self._last[2]
        return compare_heads(log, heads)

    def forget(self) -> None:
        """Keep nothing any longer."""
        self._last = None


_Front = tuple[int, EntryId, int | Iterator[EntryId]]
"""The next entry of a lane, by lamport and id, and the walk over those behind it or its end.

Walks are made as they are needed: thousands at once would take long, and much memory.
"""
Fronts = tuple[dict[Lane, _Front], dict[Lane, _Front]]
"""Where the entries that a peer lacks begin, in the lanes of the membership and in all others."""


def front_steps(log: Log, held: HeldLanes) -> Steps[Fronts]:
    """Find where the entries begin that a peer which holds `held` lacks, in steps."""
    fronts: Fronts = {}, {}
    known = len(log.entries)

    def look(lane: Lane) -> None:
        found = log.lane_rest(lane, held.next_seq(lane))
        if found is not None:
            first, rest = found
            front = log.entries[first].header.lamport, first, rest
            fronts[lane.track not in MEMBERSHIP_TRACKS][lane] = front

    for index, lane in enumerate(tuple(log.lanes()), 1):
        look(lane)
        if index % STEP_HEADS == 0:
            yield
    for entry in islice(reversed(log.entries.values()), len(log.entries) - known):
        held.drop(entry)  # as in `compare_steps`
        look(entry.header.lane)
    return fronts


def lacking(log: Log, held: HeldLanes, fronts: Fronts | None = None) -> Iterator[Entry]:
    """Return the entries that a peer which holds `held` lacks, in send order.

    Lanes are read as entries are asked for, so that a peer that reads little causes
    little work. Entries admitted meanwhile are left out. `fronts` are those of `front_steps`,
    made just before.
    """

    def wanted(part: list[_Front]) -> Iterator[Entry]:
        heapify(part)
        while part:
            _, entry_id, rest = part[0]
            walk = log.lane_walk_behind(entry_id, rest) if isinstance(rest, int) else rest
            following = next(walk, None)
            if following is None:
                heappop(part)
            else:
                heapreplace(part, (log.entries[following].header.lamport, following, walk))
            if entry_id in log.covered() and entry_id not in held:
                yield log.entries[entry_id]

    early, late = fronts or finished(front_steps(log, held))
    return chain(wanted(list(early.values())), wanted(list(late.values())))


def everything(log: Log) -> list[Entry]:
    """Return the covered entries in send order: what a peer lacks that holds none."""
    return list(lacking(log, HeldLanes(log)))


def covered_ids(log: Log) -> Iterator[EntryId]:
    """Yield the covered ids, lane by lane, as they are asked for."""
    for lane in tuple(log.lanes()):
        yield from (i for i in log.lane_walk(lane) if i in log.covered())
