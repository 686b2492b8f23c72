"""Comparison of two logs of one conversation by their lane heads (spec/05-reconcile).

Pure. Lane heads suffice while lanes agree. Where one position holds different
entries, all ids are exchanged instead.
"""

from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace, nlargest
from itertools import chain, islice

from replica import limits
from replica.ids import EntryId, Lane, Position
from replica.link.steps import STEP_HEADS, Steps, finished
from replica.log import MEMBERSHIP_TRACKS, Entry, Log


def cursor_of(log: Log) -> Sequence[Position]:
    """Return the heads of the latest entries, as many as a Watch takes (spec/13-level-1 §2).

    The entries of lanes that are left out come again.
    """
    heads = log.heads()
    if len(heads) <= limits.HEADS_PER_FRAME_MAX:
        return heads
    entries = log.entries
    return nlargest(limits.HEADS_PER_FRAME_MAX, heads, lambda head: entries[head.id].order_key)


class HeldLanes(Set[EntryId]):
    """Entries of a log that a peer holds: lanes up to a seq, and single ones behind forks."""

    def __init__(self, log: Log) -> None:
        """Start with none of `log`."""
        self._log = log
        self._up_to: dict[Lane, int] = {}
        self._more: set[EntryId] = set()
        self._passed = 0

    @classmethod
    def _from_iterable(cls, it: Iterable[EntryId]) -> set[EntryId]:  # type: ignore[override]
        return set(it)

    @property
    def ids_kept(self) -> int:
        """Ids that are kept one by one: those behind the forks of lanes."""
        return len(self._more)

    def chain_steps(self, entry_id: EntryId) -> Steps[None]:
        """Add an admitted entry and its predecessors in its lane, in steps behind a fork."""
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
            self._passed += 1
            if self._passed % STEP_HEADS == 0:
                yield

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
        if not self._up_to:
            return False
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
    backlog: "Backlog | None" = None
    """The entries not held, if they were looked for in steps."""


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
            yield from held.chain_steps(head.id)
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
    """A comparison that was made in steps, before the message with the heads or ids is received."""

    def __init__(self) -> None:
        """Start without any."""
        self._last: tuple[Log, tuple[Position, ...], HeadsVerdict] | None = None
        self._absent: tuple[Set[EntryId], Backlog] | None = None

    def steps(self, log: Log, heads: tuple[Position, ...], bytes_ahead: int) -> Steps[None]:
        """Compare, and keep the result with the first entries that the peer lacks."""
        verdict = yield from compare_steps(log, heads)
        if not verdict.diverged:
            fronts = yield from front_steps(log, verdict.held)
            backlog = Backlog(log, verdict.held, fronts, ids_kept=verdict.held.ids_kept)
            verdict = replace(verdict, backlog=backlog)
            yield from backlog.look_ahead(bytes_ahead)
        self._last = log, heads, verdict

    def verdict(self, log: Log, heads: tuple[Position, ...]) -> HeadsVerdict:
        """Return the result that was kept for these very heads and this log, else compare."""
        if self._last is not None and self._last[0] is log and self._last[1] is heads:
            if self._last[2].backlog is not None:
                self._last[2].backlog.follow()
            return self._last[2]
        return compare_heads(log, heads)

    def absent_steps(self, log: Log, ids: Set[EntryId], bytes_ahead: int) -> Steps[None]:
        """Look for the first entries that are not among a peer's ids; keep what was found."""
        fronts = yield from front_steps(log, HeldLanes(log))
        backlog = Backlog(log, ids, fronts, ids_kept=len(ids))
        yield from backlog.look_ahead(bytes_ahead)
        self._absent = ids, backlog

    def absent(self, log: Log, ids: Set[EntryId]) -> "Backlog":
        """Return the entries that are not among a peer's ids: those kept for this very set."""
        if self._absent is not None and self._absent[0] is ids and self._absent[1].log is log:
            self._absent[1].follow()
            return self._absent[1]
        return Backlog(log, ids, finished(front_steps(log, HeldLanes(log))), ids_kept=len(ids))

    def forget(self) -> None:
        """Keep nothing any longer."""
        self._last = self._absent = None


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


class Backlog(Iterator[Entry]):
    """The covered entries that a peer lacks, in send order.

    Lanes are read as entries are asked for, so that a peer that reads little causes
    little work. Entries admitted meanwhile are left out. Before the next one there may be any
    number that the peer holds, so `look_ahead` finds some in steps.
    """

    def __init__(
        self, log: Log, held: Container[EntryId], fronts: Fronts, *, ids_kept: int = 0
    ) -> None:
        """Begin at `fronts`, made just before; `held` takes the memory of so many ids."""
        self.log = log
        self.ids_kept = ids_kept
        self._held = held
        self._admitted = len(log.entries)
        self._walk: Iterator[EntryId] = chain.from_iterable(_walk(log, part) for part in fronts)
        self._found: deque[EntryId] = deque()

    def __next__(self) -> Entry:
        """Return the next entry."""
        for entry in self.take(1):
            return entry
        raise StopIteration

    def take(self, bytes_max: int) -> list[Entry]:
        """Return the next entries: so many that they have `bytes_max` or more, or the rest."""
        entries, covered, held, taken = self.log.entries, self.log.covered(), self._held, []
        found, walk = self._found, self._walk
        while bytes_max > 0:
            entry_id = found.popleft() if found else next(walk, None)
            if entry_id is None:
                break
            if entry_id in covered and entry_id not in held:
                taken.append(entries[entry_id])
                bytes_max -= taken[-1].size_bytes
        return taken

    def has_more(self) -> bool:
        """Say whether there is more; where much is to be passed over before it, it may not know."""
        if not self._found:
            next(self.look_ahead(1), None)
        return bool(self._found)

    def look_ahead(self, size: int) -> Steps[None]:
        """Find entries of so many bytes, or all, in steps."""
        entries = self.log.entries
        size -= sum(entries[i].size_bytes for i in self._found)
        passed = 0
        while size > 0 and (entry_id := next(self._walk, None)) is not None:
            if entry_id in self.log.covered() and entry_id not in self._held:
                self._found.append(entry_id)
                size -= entries[entry_id].size_bytes
            passed += 1
            if passed % STEP_HEADS == 0:
                yield

    def follow(self) -> None:
        """Add the entries that were admitted since it began."""
        entries = self.log.entries
        late = list(islice(reversed(entries), len(entries) - self._admitted))
        self._admitted = len(entries)
        self._walk = chain(self._walk, reversed(late))


def _walk(log: Log, fronts: dict[Lane, _Front]) -> Iterator[EntryId]:
    """Return the entries from these fronts on in the order of (lamport, id)."""
    heap = list(fronts.values())
    heapify(heap)
    while heap:
        _, entry_id, rest = heap[0]
        walk = log.lane_walk_behind(entry_id, rest) if isinstance(rest, int) else rest
        following = next(walk, None)
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (log.entries[following].header.lamport, following, walk))
        yield entry_id


def lacking(log: Log, held: HeldLanes, fronts: Fronts | None = None) -> "Backlog":
    """Return the entries that a peer which holds `held` lacks, in send order.

    `fronts` are those of `front_steps`, made just before.
    """
    fronts = fronts or finished(front_steps(log, held))
    return Backlog(log, held, fronts, ids_kept=held.ids_kept)


def everything(log: Log) -> list[Entry]:
    """Return the covered entries in send order: what a peer lacks that holds none."""
    return list(lacking(log, HeldLanes(log)))


def covered_ids(log: Log) -> Iterator[EntryId]:
    """Yield the covered ids, lane by lane, as they are asked for."""
    for lane in tuple(log.lanes()):
        covered = log.covered()  # as it is at any time
        yield from (i for i in log.lane_walk(lane) if i in covered)
