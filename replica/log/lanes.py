"""The lanes of one log: positions, tips, forks (spec/02-entry §1, spec/03-order §5).

Pure, and private to log.py. A lane that forks keeps both entries at a position.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from replica.ids import EntryId, Lane
from replica.log.entry import Entry


@dataclass(slots=True)
class _Slots:
    """Ids of one lane by seq, and its tips: the ids that no entry of the lane names as prev."""

    by_seq: dict[int, list[EntryId]] = field(default_factory=dict)
    tips: set[EntryId] = field(default_factory=set)


class Lanes:
    """The admitted entries by lane and seq."""

    def __init__(self) -> None:
        """Start empty."""
        self._slots: dict[Lane, _Slots] = {}

    def __iter__(self) -> Iterator[Lane]:
        """Iterate over all lanes."""
        return iter(self._slots)

    def receive(self, entry: Entry) -> None:
        """Add a newly admitted entry; its prev was added before."""
        header = entry.header
        slots = self._slots.setdefault(header.lane, _Slots())
        slots.by_seq.setdefault(header.seq, []).append(entry.id)
        slots.tips.add(entry.id)
        if header.prev is not None:
            slots.tips.discard(header.prev)

    def at(self, lane: Lane, seq: int) -> tuple[EntryId, ...]:
        """Return the ids at one seq, in order of arrival."""
        slots = self._slots.get(lane)
        return tuple(slots.by_seq.get(seq, ())) if slots else ()

    def length(self, lane: Lane) -> int:
        """Return 1 + the greatest seq of a lane, 0 for an unknown one."""
        slots = self._slots.get(lane)
        return max(slots.by_seq) + 1 if slots else 0

    def tips(self, lane: Lane) -> tuple[EntryId, ...]:
        """Return the last entries of a lane, ascending; several where it is forked."""
        slots = self._slots.get(lane)
        return tuple(sorted(slots.tips)) if slots else ()

    def all_tips(self) -> Iterable[EntryId]:
        """Return the last entries of all lanes, in no order."""
        return (tip for slots in self._slots.values() for tip in slots.tips)

    def forks(self) -> Iterator[tuple[Lane, int, tuple[EntryId, ...]]]:
        """Yield each forked lane with its first forked seq and the ids there, ascending."""
        for lane, slots in self._slots.items():
            forked = [seq for seq, ids in slots.by_seq.items() if len(ids) > 1]
            if forked:
                yield lane, min(forked), tuple(sorted(slots.by_seq[min(forked)]))
