"""Lanes: what one key wrote in one epoch on one track, by position (spec/02-entry §1).

Pure, and private to log.py. A lane is a chain of entries numbered without gaps;
one that is forked has several entries at one position, and all are kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from replica.ids import EntryId, Lane
from replica.log.entry import Entry


@dataclass(slots=True)
class _LaneState:
    """Ids by position, and the tips: ids no entry of the lane names as prev."""

    at: dict[int, list[EntryId]] = field(default_factory=dict)
    tips: set[EntryId] = field(default_factory=set)


class Lanes:
    """All lanes of one log."""

    def __init__(self) -> None:
        """Start without any."""
        self._lanes: dict[Lane, _LaneState] = {}

    def __iter__(self) -> Iterator[Lane]:
        """Iterate over all lanes."""
        return iter(self._lanes)

    def receive(self, entry: Entry) -> None:
        """Take a newly admitted entry."""
        header = entry.header
        lane = self._lanes.setdefault(header.lane, _LaneState())
        lane.at.setdefault(header.seq, []).append(entry.id)
        lane.tips.add(entry.id)
        if header.prev is not None:
            lane.tips.discard(header.prev)

    def at(self, lane: Lane, seq: int) -> tuple[EntryId, ...]:
        """Return the ids at one position: none, one, or more where the lane is forked."""
        state = self._lanes.get(lane)
        return tuple(state.at.get(seq, ())) if state else ()

    def length(self, lane: Lane) -> int:
        """Return 1 + the greatest seq of the lane, 0 for an unknown lane."""
        state = self._lanes.get(lane)
        return max(state.at) + 1 if state and state.at else 0

    def tips(self, lane: Lane) -> tuple[EntryId, ...]:
        """Return the last entries of a lane; several where it is forked."""
        state = self._lanes.get(lane)
        return tuple(sorted(state.tips)) if state else ()

    def all_tips(self) -> Iterator[EntryId]:
        """Iterate over the last entries of all lanes."""
        return (i for state in self._lanes.values() for i in state.tips)

    def equivocations(self) -> list[tuple[Lane, int, tuple[EntryId, ...]]]:
        """Return the first forked position of each forked lane, as portable proof."""
        found = []
        for lane, state in self._lanes.items():
            forked = [seq for seq, ids in state.at.items() if len(ids) > 1]
            if forked:
                found.append((lane, min(forked), tuple(sorted(state.at[min(forked)]))))
        return found
