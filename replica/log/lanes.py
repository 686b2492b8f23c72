"""The lanes of one log: who stands where, tips, forks (spec/02-entry §1, spec/03-order §5).

Pure, and private to log.py. A lane that forks keeps both entries at a position.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from replica.ids import EntryId, Lane
from replica.log.entry import Entry


@dataclass(slots=True)
class _Line:
    """Ids of one lane by position, and its tips: ids no entry of the lane names as prev."""

    at: dict[int, list[EntryId]] = field(default_factory=dict)
    tips: set[EntryId] = field(default_factory=set)


class Lanes:
    """Every admitted entry by its place."""

    def __init__(self) -> None:
        """Start empty."""
        self._lines: dict[Lane, _Line] = {}

    def __iter__(self) -> Iterator[Lane]:
        """Iterate over all lanes."""
        return iter(self._lines)

    def receive(self, entry: Entry) -> None:
        """Take a newly admitted entry; its prev came before."""
        header = entry.header
        line = self._lines.setdefault(header.lane, _Line())
        line.at.setdefault(header.seq, []).append(entry.id)
        line.tips.add(entry.id)
        if header.prev is not None:
            line.tips.discard(header.prev)

    def at(self, lane: Lane, seq: int) -> tuple[EntryId, ...]:
        """Return the ids at one position, as they came."""
        line = self._lines.get(lane)
        return tuple(line.at.get(seq, ())) if line else ()

    def length(self, lane: Lane) -> int:
        """Return 1 + the greatest seq of a lane, 0 for an unknown one."""
        line = self._lines.get(lane)
        return max(line.at) + 1 if line else 0

    def tips(self, lane: Lane) -> tuple[EntryId, ...]:
        """Return the last entries of a lane, ascending; several where it is forked."""
        line = self._lines.get(lane)
        return tuple(sorted(line.tips)) if line else ()

    def all_tips(self) -> Iterable[EntryId]:
        """Return the last entries of all lanes, in no order."""
        return (tip for line in self._lines.values() for tip in line.tips)

    def forks(self) -> Iterator[tuple[Lane, int, tuple[EntryId, ...]]]:
        """Yield the first forked position of each forked lane, and the ids there, ascending."""
        for lane, line in self._lines.items():
            forked = [seq for seq, ids in line.at.items() if len(ids) > 1]
            if forked:
                yield lane, min(forked), tuple(sorted(line.at[min(forked)]))
