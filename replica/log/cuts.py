"""The entries of one key that satisfy all cuts on it (spec/03-order §2, ORD-4).

Pure, and private to members.py. Per lane, the furthest entry kept stands for all before
it. Several cuts of a lane meet at their last common entry, and a walk down the lane
passes each entry once, however many cuts there are.
"""

from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any

from replica.ids import EntryId, PublicKey
from replica.log.body import Cut
from replica.log.entry import Entry
from replica.log.meter import Meter

Lookup = Callable[[EntryId], Entry | None]
_DROPPED_MAX = 1_024
"""Entries between two cuts beyond which the kept ones are gathered anew."""
_NONE = frozenset[EntryId]()
_Lane = tuple[int, int]
"""(epoch, track)."""
Signature = tuple[tuple[_Lane, frozenset[EntryId]], ...]
"""Per lane with a kept entry: the furthest one, or all of a lane with cuts on two branches."""


class KeptIds(Set[EntryId]):
    """The kept ids of a key: those of an earlier cut, but for the ones dropped since.

    A cut that moves by some entries costs these, however long the lane is, and so does the
    difference to the ids before.
    """

    __slots__ = ("_dropped", "_ids")

    def __init__(self, ids: frozenset[EntryId], dropped: frozenset[EntryId] = _NONE) -> None:
        """Keep `ids` without `dropped`, some of them."""
        self._ids = ids
        self._dropped = dropped

    @classmethod
    def _from_iterable(cls, it: Iterable[EntryId]) -> frozenset[EntryId]:  # type: ignore[override]
        return frozenset(it)

    def without(self, dropped: Set[EntryId]) -> "KeptIds":
        """Return the ids without some of them; the earlier ids are shared, up to a bound."""
        gone = self._dropped | dropped
        return KeptIds(self._ids - gone) if len(gone) > _DROPPED_MAX else KeptIds(self._ids, gone)

    def shares_with(self, other: "KeptIds") -> bool:
        """Say whether both are what is left of the same ids."""
        return self._ids is other._ids

    def __contains__(self, entry_id: object) -> bool:
        """Say whether an entry is kept."""
        return entry_id in self._ids and entry_id not in self._dropped

    def __iter__(self) -> Iterator[EntryId]:
        """Iterate over the ids."""
        return (i for i in self._ids if i not in self._dropped)

    def __len__(self) -> int:
        """Count the ids."""
        return len(self._ids) - len(self._dropped)

    def __sub__(self, other: Set[Any]) -> Set[EntryId]:
        """Return the ids that are not in the other set."""
        if isinstance(other, KeptIds) and other._ids is self._ids:
            return other._dropped - self._dropped
        return super().__sub__(other)

    def __xor__(self, other: Set[Any]) -> Set[EntryId]:
        """Return the ids that are in one of the sets alone."""
        if isinstance(other, KeptIds) and other._ids is self._ids:
            return other._dropped ^ self._dropped
        return super().__xor__(other)


def is_moved(was: Set[EntryId], now: Set[EntryId]) -> bool:
    """Say whether kept ids are others but for some, which `^` returns at once."""
    return isinstance(was, KeptIds) and isinstance(now, KeptIds) and was.shares_with(now)


def difference(one: Set[EntryId], other: Set[EntryId], meter: Meter) -> Set[EntryId]:
    """Return the ids in one set of kept ids and not in the other, with turns."""
    if is_moved(one, other):
        return one - other
    return {i for i in meter.turns(one) if i not in other}


class _Chain:
    """The kept entries of one lane."""

    def __init__(self, lookup: Lookup, tips: list[Entry]) -> None:
        self._lookup = lookup
        self._tip: Entry | None = tips[0]
        self._above: set[EntryId] = {tips[0].id}
        """Entries known to have the tip among their `prev`-ancestors, or to be the tip."""
        self._ids: set[EntryId] | None = None if len(tips) == 1 else self._union(tips)
        """All kept entries, once a revocation has cut the lane at several entries."""

    def meet(self, tips: list[Entry]) -> None:
        """Keep no more than these entries and their `prev`-ancestors."""
        if self._ids is None and len(tips) == 1:
            self._descend(tips[0])
            return
        kept = self.ids() if self._ids is None else self._ids
        self._ids = kept & self._union(tips)

    def _descend(self, cut: Entry) -> None:
        other: Entry | None = cut
        while self._tip is not None and other is not None and other.id not in self._above:
            if other.header.seq >= self._tip.header.seq:
                self._above.add(other.id)
                other = self._before(other)
            else:
                self._tip = self._before(self._tip)
            if self._tip is not None:
                self._above.add(self._tip.id)
        if other is None:
            self._tip = None

    def _before(self, entry: Entry) -> Entry | None:
        return self._lookup(entry.header.prev) if entry.header.prev is not None else None

    def _union(self, tips: Iterable[Entry]) -> set[EntryId]:
        found: set[EntryId] = set()
        for tip in tips:
            at: Entry | None = tip
            while at is not None and at.id not in found:
                found.add(at.id)
                at = self._before(at)
        return found

    def ids(self) -> set[EntryId]:
        """Return all kept entries."""
        if self._ids is not None:
            return self._ids
        return self._union([self._tip]) if self._tip is not None else set()

    @property
    def only_tip(self) -> Entry | None:
        """The furthest kept entry, if all before it in its lane are kept and no others."""
        return self._tip if self._ids is None else None

    @property
    def signature(self) -> frozenset[EntryId]:
        """The furthest kept entry, or all kept ones."""
        if self._ids is not None:
            return frozenset(self._ids)
        return frozenset({self._tip.id}) if self._tip is not None else frozenset()


class KeptEntries:
    """The entries of one key that satisfy the cuts seen so far; without cuts, all of them."""

    def __init__(self, key: PublicKey, lookup: Lookup) -> None:
        """Start without cuts; `lookup` returns any admitted entry by id."""
        self._key = key
        self._lookup = lookup
        self._chains: dict[_Lane, _Chain] | None = None

    @property
    def is_cut(self) -> bool:
        """Say whether there is a revocation."""
        return self._chains is not None

    def cut(self, cuts: Iterable[Cut]) -> None:
        """Add the cuts of one revocation; lanes it doesn't list keep nothing."""
        tips: dict[_Lane, list[Entry]] = {}
        for cut in cuts:
            entry = self._lookup(cut.id)
            if entry is None or entry.header.author != self._key:
                continue
            header = entry.header
            if (header.epoch, header.track, header.seq) == (cut.epoch, cut.track, cut.seq):
                tips.setdefault((header.epoch, header.track), []).append(entry)
        if self._chains is None:
            self._chains = {lane: _Chain(self._lookup, found) for lane, found in tips.items()}
            return
        self._chains = {lane: chain for lane, chain in self._chains.items() if lane in tips}
        for lane, chain in self._chains.items():
            chain.meet(tips[lane])

    @property
    def signature(self) -> Signature:
        """A value that determines `ids`, while no entry is dropped."""
        chains = self._chains or {}
        found = ((lane, chain.signature) for lane, chain in sorted(chains.items()))
        return tuple((lane, ids) for lane, ids in found if ids)

    def ids(self) -> KeptIds:
        """Return the kept entries, if there is any cut."""
        chains = self._chains or {}
        return KeptIds(frozenset(i for chain in chains.values() for i in chain.ids()))

    def dropped_since(self, before: Signature) -> set[EntryId] | None:
        """Return the entries that an earlier signature keeps and these cuts do not.

        None where these cuts keep more, or where a walk down the lanes does not show it soon.
        """
        kept = {lane: chain for lane, chain in (self._chains or {}).items() if chain.signature}
        furthest, dropped = dict(before), set[EntryId]()
        if not kept.keys() <= furthest.keys():
            return None
        for lane, tips in furthest.items():
            goal = kept[lane].only_tip if lane in kept else None
            if len(tips) != 1 or (lane in kept and goal is None):
                return None
            at = self._lookup(next(iter(tips)))
            while at is not None and at is not goal:
                dropped.add(at.id)
                if len(dropped) > _DROPPED_MAX:
                    return None
                at = self._lookup(at.header.prev) if at.header.prev is not None else None
            if at is not goal:
                return None
        return dropped
