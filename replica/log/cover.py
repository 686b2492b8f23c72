"""The entries that digest and sync cover (spec/03-order §5).

Pure, and private to log.py. An entry inside all cuts of a key with a role other
than reader is covered for its own sake, and so are the entries it names. Per entry the
covered ones that name it are counted, so that a change of the membership concerns the
entries of the keys that it changes, and those that they alone made covered.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from replica.ids import EntryId, PublicKey
from replica.log.cuts import is_moved
from replica.log.entry import Entry
from replica.log.graph import reach
from replica.log.kinds import Kind
from replica.log.members import Membership
from replica.log.meter import Meter


class CoveredIds(Set[EntryId]):
    """The covered ids, as a view: all entries but the uncovered ones."""

    def __init__(self, entries: Mapping[EntryId, Entry], uncovered: Set[EntryId]) -> None:
        """Show the difference of two sets that go on changing."""
        self._entries = entries
        self._uncovered = uncovered

    @classmethod
    def _from_iterable(cls, it: Iterable[EntryId]) -> set[EntryId]:  # type: ignore[override]
        return set(it)

    def __contains__(self, entry_id: object) -> bool:
        """Say whether an entry is here and covered."""
        return entry_id in self._entries and entry_id not in self._uncovered

    def __iter__(self) -> Iterator[EntryId]:
        """Iterate over the ids, ancestors first."""
        return (i for i in self._entries if i not in self._uncovered)

    def __len__(self) -> int:
        """Count the ids."""
        return len(self._entries) - len(self._uncovered)


@dataclass(slots=True)
class Changes:
    """The changes of a cover since they were read last; an id may come in both, in order."""

    steps: list[tuple[EntryId, bool]] = field(default_factory=list)
    """Ids with whether they are covered now. Ancestors are added first and removed last."""

    def read(self) -> list[tuple[EntryId, bool]]:
        """Return the steps, and forget them."""
        steps, self.steps = self.steps, []
        return steps


class Cover:
    """The covered ids of one log."""

    def __init__(
        self,
        entries: Mapping[EntryId, Entry],
        named: Callable[[EntryId], tuple[EntryId, ...]],
        meter: Meter,
    ) -> None:
        """Start with `entries`, all admitted ones by id; `named` returns the ids one names."""
        self._entries = entries
        self._named = named
        self._meter = meter
        self._of: dict[PublicKey, list[EntryId]] = {}
        self._namers: Counter[EntryId] = Counter()
        """Per entry, the number of times that covered entries name it."""
        self._uncovered: set[EntryId] = set()
        self.covered = CoveredIds(entries, self._uncovered)
        """The covered ids, without the entries and changes that are not judged yet."""
        self._new: list[EntryId] = []
        self._membership = Membership()
        self._newly_covered: dict[EntryId, list[EntryId]] = {}
        """Per covered entry, the ids that it made covered by naming them."""
        self._regained: dict[EntryId, list[EntryId]] = {}
        """The ids held before that the last changes of the membership made covered, by the last
        of these."""
        self._followers: list[Changes] = []

    def receive(self, entry: Entry) -> None:
        """Add a newly admitted entry."""
        self._of.setdefault(entry.header.author, []).append(entry.id)
        self._uncovered.add(entry.id)
        self._new.append(entry.id)

    def follow(self) -> Changes:
        """Return the changes from now on; the entries covered now are the first of them."""
        changes = Changes([(i, True) for i in self.covered])
        self._followers.append(changes)
        return changes

    def ids(self, membership: Membership) -> Set[EntryId]:
        """Return the covered ids under the current membership, as a view."""
        if not self._new and membership is self._membership:
            return self.covered
        new, self._new = self._new, []
        if membership is not self._membership:
            before, self._membership = self._membership, membership
            self._judge_again(before, membership, new)
        for entry_id in new:
            self._add(entry_id, membership)
        return self.covered

    def offered(self, membership: Membership, given: Sequence[EntryId]) -> list[EntryId]:
        """Return the covered ones of new entries, with the entries that they made covered.

        Those that an entry names come before it, those of a key that it grants a role after it.
        """
        covered = self.ids(membership)
        listed: dict[EntryId, None] = {}
        for entry_id in given:
            if entry_id in covered:
                before, after = (
                    made.get(entry_id, ()) for made in (self._newly_covered, self._regained)
                )
                with_it = [*before, entry_id, *after]
                if len(given) == 1:
                    return with_it  # of 10^5 entries a dict takes 15 ms
                listed |= dict.fromkeys(with_it)
        return list(listed)

    # --- a change of the membership ----------------------------------------------------------

    def _judge_again(self, before: Membership, now: Membership, new: list[EntryId]) -> None:
        """Judge the entries of the keys that a change concerns; `new` ones are judged later."""
        came = set(new)
        gained, lost = [], []
        for author in self._changed(before, now):
            for entry_id in self._concerned(author, before, now):
                if entry_id in came:
                    continue
                self._meter.count()
                entry = self._entries[entry_id]
                covers = now.covers(entry)
                if covers and entry_id in self._uncovered:
                    gained.append(entry_id)
                elif not covers and before.covers(entry):
                    lost.append(entry_id)
        found: list[EntryId] = []
        for entry_id in self._meter.sorted(gained, self._order_key):
            found += self._cover(entry_id)
        self._note_regained(new, found, now)
        self._uncover(lost, now)

    def _concerned(
        self, author: PublicKey, before: Membership, now: Membership
    ) -> Iterable[EntryId]:
        """Return the entries of an author that a change may concern, ancestors first.

        A cut moved by one entry concerns that entry, however long the lane is.
        """
        ids, was, is_now = self._of[author], before.kept.get(author), now.kept.get(author)
        resigned = before.resignations ^ now.resignations
        is_same = before.covers_author(author) == now.covers_author(author)
        has_resigned = bool(resigned) and not resigned.isdisjoint(ids)
        if not is_same or has_resigned or (was is None and is_now is None):
            return ids
        if was is None or is_now is None:
            kept = is_now if was is None else was
            return [i for i in self._meter.turns(ids) if kept is None or i not in kept]
        if not is_moved(was, is_now):
            return [i for i in self._meter.turns(ids) if (i in was) != (i in is_now)]
        return self._meter.sorted(was ^ is_now, self._order_key)

    def _changed(self, before: Membership, now: Membership) -> list[PublicKey]:
        """Return the authors of whose entries others may be covered for their own sake now."""
        resigned = {
            self._entries[i].header.author
            for i in before.resignations ^ now.resignations
            if i in self._entries
        }
        return [
            author
            for author in self._of
            if before.kept.get(author) is not now.kept.get(author)
            or before.covers_author(author) != now.covers_author(author)
            or author in resigned
        ]

    def _uncover(self, lost: list[EntryId], now: Membership) -> None:
        """Uncover those of these entries that no covered one names, and those they alone name."""
        todo = [i for i in lost if not self._namers[i]]
        while todo:
            entry_id = todo.pop()
            if entry_id in self._uncovered:
                continue
            self._uncovered.add(entry_id)
            self._report(entry_id, is_covered=False)
            self._newly_covered.pop(entry_id, None)
            for name in self._named(entry_id):
                self._namers[name] -= 1
                self._meter.count()
                if not self._namers[name]:
                    del self._namers[name]
                    if not now.covers(self._entries[name]):
                        todo.append(name)

    def _note_regained(
        self, came: Iterable[EntryId], regained: list[EntryId], now: Membership
    ) -> None:
        """Note the entries that became covered although no new entry names them.

        They are offered after the last change that came and may have made them covered. One
        that has no effect may be uncovered, and then nothing is offered with it.
        """
        entries = map(self._entries.__getitem__, came)
        changes = [e.id for e in entries if e.header.kind == Kind.MEMBER and now.covers(e)]
        if changes:
            self._regained = {changes[-1]: regained}

    # --- entries -------------------------------------------------------------------------------

    def _add(self, entry_id: EntryId, membership: Membership) -> None:
        """Cover a new entry with those it names, if it is covered for its own sake."""
        self._meter.count()
        if entry_id in self._uncovered and membership.covers(self._entries[entry_id]):
            newly_covered = self._cover(entry_id)[:-1]
            if newly_covered:
                self._newly_covered[entry_id] = newly_covered

    def _cover(self, entry_id: EntryId) -> list[EntryId]:
        """Cover an entry and those it names; return the ones that were not, ancestors first."""
        ids = [entry_id]
        if not self._uncovered.isdisjoint(self._named(entry_id)):
            outside = self._uncovered.__contains__
            found = reach(ids, self._named, lambda i: not outside(i), meter=self._meter)
            ids = self._meter.sorted(found, self._order_key)
        for newly_covered in ids:
            self._uncovered.discard(newly_covered)
            self._report(newly_covered, is_covered=True)
            names = self._named(newly_covered)
            for name in names:
                self._namers[name] = self._namers.get(name, 0) + 1
            self._meter.count(len(names))
        return ids

    def _order_key(self, entry_id: EntryId) -> tuple[int, EntryId]:
        return self._entries[entry_id].order_key

    def _report(self, entry_id: EntryId, *, is_covered: bool) -> None:
        for changes in self._followers:
            changes.steps.append((entry_id, is_covered))
