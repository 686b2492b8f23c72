"""Bugs in the folds: admission, membership, order, coverage, the document."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from unittest import mock

from replica.conversation import conversation, next_seal
from replica.document import projection
from replica.ids import EntryId, PublicKey, tagged_sha256
from replica.log import checks, members
from replica.log.cover import Cover
from replica.log.entry import Entry
from replica.log.heads import Heads
from replica.log.log import Log
from replica.log.members import Membership
from replica.log.pending import PendingEntries
from replica.order import verdict
from replica.order.coverage import Covered, coverage, is_answer
from replica.order.late import LateMessages
from replica.order.node import SealNode
from replica.order.tree import Order
from tests.simulation.oracle import agreement
from tests.simulation.planted import Patch

tail = import_module("replica.order.tail")  # the package offers a function of that name


def sees_no_lane_diverge() -> Patch:
    return mock.patch.object(Log, "at", lambda self, lane, seq: ())


def digests_positions_without_ids() -> Patch:
    def version_vector(self: Heads) -> bytes:
        positions = [(h.lane, h.seq) for h in self.sorted()]
        return tagged_sha256(b"vector", repr(positions).encode())

    return mock.patch.object(Heads, "digest", version_vector)


def releases_nothing_from_pending() -> Patch:
    complete = PendingEntries.mark_complete

    def release_none(self: PendingEntries, entry_id: EntryId) -> list[EntryId]:
        complete(self, entry_id)
        return []

    return mock.patch.multiple(
        PendingEntries, mark_complete=release_none, complete_by=lambda self, authors: []
    )


def counts_entries_outside_a_cut() -> Patch:
    return mock.patch.object(Membership, "satisfies_cuts", lambda self, entry: True)


def closes_every_request() -> Patch:
    return _closing(lambda order, node, request, membership: node is not None)


def _closing(is_closed: Callable[..., bool]) -> Patch:
    return _both(
        mock.patch.object(verdict, "is_closed", is_closed),
        mock.patch.object(next_seal, "is_closed", is_closed),
    )


def admits_a_seal_before_the_entries_it_lists() -> Patch:
    return mock.patch.object(checks, "listed_ids", lambda body: ())


def covers_no_ancestors() -> Patch:
    def cover(self: Cover, entry_id: EntryId) -> list[EntryId]:
        self._uncovered.discard(entry_id)
        self._report(entry_id, is_covered=True)
        return [entry_id]

    return mock.patch.object(Cover, "_cover", cover)


def offers_nothing_that_a_grant_made_covered() -> Patch:
    return mock.patch.object(Cover, "_note_regained", lambda self, came, regained, now: None)


def counts_no_resignation() -> Patch:
    resolve = members._Fold.resolve_cuts

    def ignore(self: members._Fold, key: PublicKey) -> None:
        mine = self.by_author.pop(key, [])
        resolve(self, key)
        self.by_author[key] = mine

    return mock.patch.object(members._Fold, "resolve_cuts", ignore)


def judges_a_seal_by_the_membership_of_now() -> Patch:
    return mock.patch.object(members.Roster, "at", lambda self, heads: self.now)


def ignores_the_basis() -> Patch:
    return mock.patch.object(Order, "resolve_basis", lambda self, request: None)


def breaks_ties_between_tips_by_arrival() -> Patch:
    def tips(self: Order) -> list[SealNode]:
        leaves = [node for node in self.nodes.values() if not self.children(node)]
        entries = self.log.entries
        return sorted(leaves, key=lambda n: entries[n.generation or n.id].header.lamport)

    return mock.patch.object(Order, "tips", tips)


def puts_the_newest_tip_first() -> Patch:
    tips = Order.tips
    return mock.patch.object(Order, "tips", lambda self: tips(self)[::-1])


def forgets_messages_beside_a_sealed_request() -> Patch:
    return mock.patch.object(LateMessages, "_is_late", lambda self, message: False)


def breaks_ties_in_a_tail_by_arrival() -> Patch:
    in_order = tail.tail

    def by_arrival(order: Order, tip: SealNode | None) -> list[Entry]:
        at = {entry_id: n for n, entry_id in enumerate(order.log.entries)}
        return sorted(in_order(order, tip), key=lambda e: (e.header.lamport, at[e.id]))

    return _both(
        mock.patch.object(tail, "tail", by_arrival),
        mock.patch.object(agreement, "tail", by_arrival),
    )


def breaks_ties_in_a_seal_by_arrival() -> Patch:
    def by_arrival(log: Log, nodes: dict, request: EntryId, parent, *more) -> Covered:
        at = {entry_id: n for n, entry_id in enumerate(log.entries)}
        tip = parent.id if parent is not None else None

        def key(i: EntryId) -> tuple:
            entry = log.entries[i]
            return (not is_answer(entry, tip), entry.header.lamport, at[i])

        covered = coverage(log, nodes, request, parent, *more)
        return replace(covered, entries=tuple(sorted(covered.entries, key=key)))

    return _both(
        mock.patch.object(verdict, "coverage", by_arrival),
        mock.patch.object(next_seal, "coverage", by_arrival),
    )


def merges_a_document_in_another_order() -> Patch:
    return mock.patch.object(
        projection, "_order", lambda update: (update.lamport, bytes(255 - b for b in update.id))
    )


def shows_updates_outside_a_cut() -> Patch:
    updates_of = conversation.updates_of

    def all_of(log: Log, *more: list[Entry]) -> list:
        with mock.patch.object(Membership, "is_visible", lambda self, entry: True):
            return updates_of(log, *more)

    return mock.patch.object(conversation, "updates_of", all_of)


def leaves_a_queued_request_without_the_answer_before_it() -> Patch:
    def alone(log: Log, nodes: dict, request: EntryId, parent, answer, membership) -> Covered:
        return coverage(log, nodes, request, parent, None, membership)

    return _both(
        mock.patch.object(verdict, "coverage", alone),
        mock.patch.object(next_seal, "coverage", alone),
    )


@contextmanager
def _both(first: Patch, second: Patch) -> Iterator[None]:
    with first, second:
        yield
