"""The tail of one branch and its ends, kept while entries come (spec/03-order §3, ORD-10).

Pure, and private to tail.py. An entry that follows the tail moves its ends, and so does a
late message, or one written behind the request; only a seal of its entries, or an entry that
may change which requests wait for the answer, makes it be computed anew. A cut takes entries
out of it, unless it may change which messages are late. So the parents of the next entry cost
no pass over a long tail.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Set
from typing import TYPE_CHECKING
from weakref import proxy

from replica.ids import EntryId, PublicKey, Track
from replica.limits import PARENTS_MAX
from replica.log import Entry, Kind, Membership, difference
from replica.order.cancels import is_withdrawal
from replica.order.eligible import is_tail_entry
from replica.order.ends import first_reached, unfollowed
from replica.order.late import LateMessages
from replica.order.meanwhile import Meanwhile
from replica.order.node import SealNode
from replica.order.withdrawals import first_closing, is_named, missing

if TYPE_CHECKING:
    from replica.order.tree import Order


def _changes(key: PublicKey, before: Membership, now: Membership) -> bool:
    """Say whether a change of the membership may concern an entry of this key."""
    is_same = before.roles.get(key) == now.roles.get(key)
    return not is_same or before.kept.get(key) is not now.kept.get(key)


class OpenTail:
    """The tail of a tip: the unsealed entries behind its start, and the ends among them."""

    def __init__(
        self,
        order: "Order",
        tip: SealNode | None,
        start: EntryId,
        *,
        unsealed: set[EntryId],
        meanwhile: Meanwhile | None,
        found: Iterable[Entry],
    ) -> None:
        """Start with the entries held.

        `unsealed` are those behind `start`; `meanwhile` those behind the tip's request, None
        where that is the start; `found` the start and the tail without late messages.
        """
        self._order: Order = proxy(order)  # it refers to this, and is freed with it
        self._log = order.log
        self._of: tuple[SealNode | None, EntryId, Membership] = tip, start, self._log.membership
        self._start = start
        self._unsealed, self._meanwhile = unsealed, meanwhile
        turns = self._log.meter.turns
        behind = turns((*unsealed, *(meanwhile.behind if meanwhile is not None else ())))
        self._authors = {self._log.entries[i].header.author for i in behind}
        self._late = LateMessages(order, tip, unsealed) if tip is not None else None
        late = map(self._log.entries.__getitem__, self._late.ids if self._late is not None else ())
        entries = {entry.id: entry for entry in turns((*found, *late))}
        self._reached: set[EntryId] | None = None
        """What the tail reaches that the chain has not settled; None if no message is withdrawn."""
        self._withdrawals: dict[EntryId, EntryId | None] = {}
        """Per message that is reached and withdrawn: the CANCEL added, None if one is reached."""
        self._enders: set[PublicKey] = set()
        """The authors of all CANCELs of messages that are reached, with effect or without."""
        if order.cancels.withdraws:
            self._reached = set()
            added = self._reach(entries)
            assert added is not None, "none was added before"
            entries |= {cancel.id: cancel for cancel in added}
        self._found = set(entries)
        self._first = first_reached(turns(entries.values()), order.unreached)
        last = unfollowed(self._log, entries.values(), order.unreached)
        self._ends = sorted(entry.order_key for entry in turns(last))

    def is_of(self, tip: SealNode | None, start: EntryId) -> bool:
        """Say whether this is the tail of `tip`, from this start and under today's membership."""
        mine, begun, _ = self._of
        return tip is mine and start == begun and self._is_judged()

    @property
    def follows_cuts(self) -> bool:
        """Whether entries that are covered no longer leave it; else it is computed anew."""
        return self._late is None

    def _is_judged(self) -> bool:
        """Judge the entries under today's membership; return False to compute the tail anew.

        Whatever is added is judged under today's, so the others have to be first: two changes
        of which the second undoes the first are no change together.
        """
        tip, start, judged_by = self._of
        membership = self._log.membership
        if membership is not judged_by:
            if any(_changes(key, judged_by, membership) for key in self._enders):
                return False  # other CANCELs have effect
            if not self._judge_again(judged_by, membership):
                return False
            self._of = tip, start, membership
        return True

    def _judge_again(self, before: Membership, now: Membership) -> bool:
        """Take out the entries that cuts made invisible; return False to compute it anew."""
        if not self.follows_cuts:
            # A late message may have been covered only now, by a grant to its author.
            authors = self._authors | self._order.unreached.authors()
            return not any(_changes(key, before, now) for key in authors)
        lost: set[EntryId] = set()
        for key in self._authors:
            if before.roles.get(key) != now.roles.get(key):
                return False
            was, kept = before.kept.get(key), now.kept.get(key)
            if was is kept:
                continue
            if kept is None:
                return False  # entries come back
            if was is None:
                lost |= self._lost_of(key, kept)
            elif difference(kept, was, self._log.meter):
                return False  # entries come back
            else:
                lost |= difference(was, kept, self._log.meter) & self._found
        lost.discard(self._start)
        if lost and self._reached is not None:
            return False  # what they reached is unknown
        return not lost or self._lose(lost)

    def _lost_of(self, key: PublicKey, kept: Set[EntryId]) -> set[EntryId]:
        entries, found = self._log.entries, self._log.meter.turns(self._found)
        return {i for i in found if entries[i].header.author == key and i not in kept}

    def _lose(self, lost: set[EntryId]) -> bool:
        """Take these out; those that they alone followed are ends. False if that takes too long."""
        self._found -= lost
        entries = self._log.entries
        for entry_id in self._log.meter.turns(lost):
            self._remove_end(entries[entry_id])
        left = len(self._found) + len(lost)
        alone: set[EntryId] = set()
        for entry_id in self._log.meter.turns(self._found_before(lost)):
            passed = self._passed_to_follower(entry_id, alone, left)
            if passed is None:
                return False
            if passed:
                left -= passed
            else:
                self._remove_end(entries[entry_id])
                insort(self._ends, entries[entry_id].order_key)
        return True

    def _found_before(self, lost: set[EntryId]) -> list[EntryId]:
        """Return the entries of the tail that these followed, with none of it between."""
        seen, todo, before = set[EntryId](), list(lost), list[EntryId]()
        while todo:
            self._log.meter.turn()
            header = self._log.entries[todo.pop()].header
            for at in header.parents:
                if at in seen:
                    continue
                seen.add(at)
                if at in self._found:
                    before.append(at)
                elif self._log.entries[at].header.lamport > self._first:
                    todo.append(at)
        return sorted(before)

    def _passed_to_follower(self, start: EntryId, alone: set[EntryId], most: int) -> int | None:
        """Return how many entries lie on the ways to one of the tail that follows; 0 without one.

        `alone` are those known to be followed by none of it, and get more. None beyond `most`.
        """
        passed, todo = {start}, list(self._log.children(start))
        while todo:
            self._log.meter.turn()
            at = todo.pop()
            if at in self._found:
                return len(passed)
            if at in alone or at in passed:
                continue
            if len(passed) > most:
                return None
            passed.add(at)
            todo.extend(self._log.children(at))
        alone |= passed - {start}
        return 0

    def receive(self, entry: Entry, node: SealNode | None) -> bool:
        """Add a newly admitted entry; return False if the tail has to be computed anew.

        `node` is the entry's, if it is a seal that counts.
        """
        header = entry.header
        if header.track != Track.CONVERSATION:
            return True
        if not self._is_judged():
            return False
        if header.kind == Kind.SEAL:
            return node is None or not self._lists_any(node)
        if is_withdrawal(self._log, entry) and not self._receive_withdrawal(entry):
            return False
        meanwhile = self._meanwhile
        if meanwhile is not None and meanwhile.is_followed_by(entry):
            self._authors.add(header.author)
            if not meanwhile.receive(entry):
                return False
        if any(p == self._start or p in self._unsealed for p in header.parents):
            self._unsealed.add(entry.id)
            self._authors.add(header.author)
            if is_tail_entry(self._log, entry):
                return self._add(entry)
        elif self._late is not None:
            return self._receive_beside(self._late, entry)
        return True

    def _receive_beside(self, late: LateMessages, entry: Entry) -> bool:
        """Add an entry that does not descend from the start; False to compute the tail anew."""
        is_kept, meanwhile = late.receive(entry), self._meanwhile
        is_meanwhile = meanwhile is not None and entry.id in meanwhile.ids
        if entry.id in late.ids or (is_meanwhile and is_tail_entry(self._log, entry)):
            return self._add(entry) and is_kept
        return is_kept

    def _receive_withdrawal(self, cancel: Entry) -> bool:
        """Add the CANCEL of a message that is reached; return False to compute the tail anew."""
        (message,) = cancel.header.parents
        if self._reached is None:
            return False
        if message not in self._reached:
            return True
        self._enders.add(cancel.header.author)
        first = first_closing(self._order, message)
        known = self._withdrawals.get(message)
        if message in self._withdrawals or first is None:
            return known is None or known == first
        self._withdrawals[message] = first
        self._add_end(self._log.entries[first])
        return True

    def _add(self, entry: Entry) -> bool:
        """Add an entry, with the CANCELs of messages that it reaches; False to compute anew."""
        self._add_end(entry)
        if self._reached is None:
            return True
        added = self._reach([entry.id])
        for cancel in added or ():
            self._add_end(cancel)
        return added is not None

    def _reach(self, ids: Iterable[EntryId]) -> list[Entry] | None:
        """Note what entries reach, and return the CANCELs to add.

        None where a CANCEL is reached beside the one that was added.
        """
        assert self._reached is not None, "some message is withdrawn"
        tip, entries = self._of[0], self._log.entries
        todo, new, added = list(ids), list[EntryId](), list[Entry]()
        while todo:
            at = todo.pop()
            if at in self._reached or (tip is not None and tip.covers(at)):
                continue
            self._log.meter.turn()
            self._reached.add(at)
            new.append(at)
            todo += entries[at].header.parents
        for at in self._log.meter.turns(new):
            if self._withdrawals and is_withdrawal(self._log, entries[at]):
                (message,) = entries[at].header.parents
                known = self._withdrawals.get(message)
                if known == at:
                    self._withdrawals[message] = None
                elif known is not None:
                    return None
        for at in self._log.meter.turns(new):
            if is_named(self._order, at):
                self._enders |= self._order.cancels.authors(at)
                if first_closing(self._order, at) is not None:
                    cancel = missing(self._order, at, self._reached)
                    self._withdrawals[at] = cancel
                    added += [entries[cancel]] if cancel is not None else []
        return added

    def _lists_any(self, node: SealNode) -> bool:
        if self._late is not None and not self._late.receive_seal(node):
            return True
        behind = self._meanwhile.behind if self._meanwhile is not None else ()
        return any(i in self._unsealed or i in behind for i in node.seal.entries)

    def _add_end(self, entry: Entry) -> None:
        followed, todo = set[EntryId](), list(entry.header.parents)
        while todo:
            at = todo.pop()
            if at in followed:
                continue
            followed.add(at)
            before = self._log.entries[at]
            if at in self._found:  # those that it follows are no ends already
                self._remove_end(before)
            elif at in self._order.unreached or before.header.lamport > self._first:
                todo.extend(before.header.parents)
        self._found.add(entry.id)
        insort(self._ends, entry.order_key)

    def _remove_end(self, entry: Entry) -> None:
        index = self._index(entry)
        if index is not None:
            del self._ends[index]

    def _index(self, entry: Entry) -> int | None:
        """Return the index of an end, None for any other entry."""
        index = bisect_left(self._ends, entry.order_key)
        is_end = index < len(self._ends) and self._ends[index] == entry.order_key
        return index if is_end else None

    def ends(self) -> tuple[EntryId, ...]:
        """Return the ends, ascending: of more than 64 the start, if it is one, and the last."""
        last = self._ends[-PARENTS_MAX:]
        start = self._log.entries[self._start]
        index = self._index(start)
        if index is not None and index < len(self._ends) - PARENTS_MAX:
            last = [start.order_key, *last[1:]]  # what does not follow it might wait for ever
        return tuple(sorted(entry_id for _, entry_id in last))
