"""The lanes of one log: positions, tips, forks (spec/02-entry §1, spec/03-order §5).

Pure, and private to log.py. A lane that forks keeps both entries at a position.
Nothing here passes over a whole lane but the first fork of it.
"""

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from replica.ids import EntryId, Lane, PublicKey
from replica.log.entry import Entry

OrderKey = tuple[int, EntryId]
"""(lamport, id)."""

_LOOKED_AT_PER_TIP = 16
"""Entries of a forked lane that are looked at for each of its latest tips."""


@dataclass(slots=True)
class _Slots:
    """Ids of one lane by seq, and its tips: the ids that no entry of the lane names as prev."""

    by_seq: dict[int, list[EntryId]] = field(default_factory=dict)
    tips: set[EntryId] = field(default_factory=set)
    length: int = 0
    """1 + the greatest seq."""
    fork: int | None = None
    """The first forked seq."""
    behind_fork: list[OrderKey] = field(default_factory=list)
    """The entries from the first forked seq on, in (lamport, id) order."""


class Lanes:
    """The admitted entries by lane and seq."""

    def __init__(self, entries: Mapping[EntryId, Entry]) -> None:
        """Start empty; headers are read from `entries`, all admitted entries by id."""
        self._entries = entries
        self._slots: dict[Lane, _Slots] = {}
        self._by_author: dict[PublicKey, list[Lane]] = {}
        self.written: Counter[PublicKey] = Counter()
        """Entries per author."""

    def __iter__(self) -> Iterator[Lane]:
        """Iterate over all lanes."""
        return iter(self._slots)

    def __len__(self) -> int:
        """Count the lanes."""
        return len(self._slots)

    def of(self, author: PublicKey) -> tuple[Lane, ...]:
        """Return the lanes of one author, in the order in which they began here."""
        return tuple(self._by_author.get(author, ()))

    def receive(self, entry: Entry) -> None:
        """Add a newly admitted entry; its prev was added before."""
        header = entry.header
        lane = header.lane
        slots = self._slots.get(lane)
        if slots is None:
            slots = self._slots[lane] = _Slots()
            self._by_author.setdefault(lane.author, []).append(lane)
        self.written[lane.author] += 1
        ids = slots.by_seq.setdefault(header.seq, [])
        ids.append(entry.id)
        slots.length = max(slots.length, header.seq + 1)
        slots.tips.add(entry.id)
        if header.prev is not None:
            slots.tips.discard(header.prev)
        if len(ids) > 1 and (slots.fork is None or header.seq < slots.fork):
            self._fork(slots, header.seq)
        elif slots.fork is not None and header.seq >= slots.fork:
            insort(slots.behind_fork, entry.order_key)

    def _fork(self, slots: _Slots, seq: int) -> None:
        found = (i for at in range(seq, slots.length) for i in slots.by_seq[at])
        slots.fork = seq
        slots.behind_fork = sorted(self._entries[i].order_key for i in found)

    def at(self, lane: Lane, seq: int) -> tuple[EntryId, ...]:
        """Return the ids at one seq, in order of arrival."""
        slots = self._slots.get(lane)
        return tuple(slots.by_seq.get(seq, ())) if slots else ()

    def length(self, lane: Lane) -> int:
        """Return 1 + the greatest seq of a lane, 0 for an unknown one."""
        slots = self._slots.get(lane)
        return slots.length if slots else 0

    def fork(self, lane: Lane) -> int | None:
        """Return the first seq at which a lane holds several entries, None if it is not forked."""
        slots = self._slots.get(lane)
        return slots.fork if slots else None

    def tips(self, lane: Lane) -> tuple[EntryId, ...]:
        """Return the last entries of a lane, ascending; several where it is forked."""
        slots = self._slots.get(lane)
        return tuple(sorted(slots.tips)) if slots else ()

    def last_tips(self, lane: Lane, most: int) -> tuple[EntryId, ...]:
        """Return at most so many last entries of a lane, ascending: all, else the latest ones.

        They are looked for among the entries at the lane's end, however often it is forked.
        """
        slots = self._slots.get(lane)
        if slots is None or len(slots.tips) <= most:
            return self.tips(lane)
        end = slots.behind_fork[: -_LOOKED_AT_PER_TIP * most - 1 : -1]
        return tuple(sorted(islice((i for _, i in end if i in slots.tips), most)))

    def walk(self, lane: Lane, start: int = 0) -> Iterator[EntryId]:
        """Return the ids of a lane from one seq on, in (lamport, id) order, read as asked for.

        Entries that the lane grows by from now on are left out, but for some of a forked lane.
        """
        slots = self._slots[lane]
        last = slots.behind_fork[-1] if slots.fork is not None else None
        return self._walk(slots, start, slots.length if slots.fork is None else slots.fork, last)

    def rest(self, lane: Lane, start: int) -> tuple[EntryId, int | Iterator[EntryId]] | None:
        """Return the first entry of a lane from one seq on, None if there is none.

        With it comes the end of those behind it, for `walk_behind`, or of a forked lane a walk.
        """
        slots = self._slots[lane]
        if start >= slots.length:
            return None
        if slots.fork is None:
            return slots.by_seq[start][0], slots.length
        walk = self.walk(lane, start)
        return next(walk), walk

    def walk_behind(self, entry_id: EntryId, end: int) -> Iterator[EntryId]:
        """Return the ids behind an entry of a lane that was not forked up to `end`, as `walk`."""
        header = self._entries[entry_id].header
        return self._walk(self._slots[header.lane], header.seq + 1, end, None)

    def _walk(
        self, slots: _Slots, start: int, end: int, last: OrderKey | None
    ) -> Iterator[EntryId]:
        for seq in range(start, end):
            yield slots.by_seq[seq][0]
        if last is None:
            return
        at: OrderKey = (-1, EntryId(b""))
        while (index := bisect_right(slots.behind_fork, at)) < len(slots.behind_fork):
            at = slots.behind_fork[index]
            if at > last:
                return
            if self._entries[at[1]].header.seq >= start:
                yield at[1]

    def forks(self) -> Iterator[tuple[Lane, int, tuple[EntryId, ...]]]:
        """Yield each forked lane with its first forked seq and the ids there, ascending."""
        for lane, slots in self._slots.items():
            if slots.fork is not None:
                yield lane, slots.fork, tuple(sorted(slots.by_seq[slots.fork]))
