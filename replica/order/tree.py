"""Order: the tree of seals, with its branches and contexts (spec/03-order §3).

A pure fold over a Log. A seal is a host's statement of the model's context. The
valid seals form a tree, and the entries behind a seal are never reordered.
"""

from collections.abc import Collection, Iterable, Sequence

from replica.ids import EntryId, PublicKey
from replica.log import Body, Conflict, Entry, Generation, Kind, Log, Membership, Request, Seal
from replica.order.cancels import Cancels, is_withdrawal
from replica.order.coverage import Covered
from replica.order.forks import Forks
from replica.order.node import SealNode
from replica.order.open_tail import OpenTail
from replica.order.unanswered import Unanswered
from replica.order.unreached import Unreached
from replica.order.verdict import SealVoid, VoidReason, judge

_AFTER_SEALED_BEFORE = (VoidReason.COVERAGE_WRONG, VoidReason.CONTEXT_DIGEST_WRONG)
"""The steps of ORD-7 behind SEALED_BEFORE."""

_DECISIVE = frozenset({Kind.SEAL, Kind.GENERATION, Kind.CANCEL})
"""Kinds of which one entry may decide whether another counts."""

LastCoverage = tuple[tuple[EntryId | None, ...], Membership, Covered]
"""The request, parent and answer; the membership; the coverage under these."""


class Order:
    """The tree of seals of one log, kept up to date by `receive`."""

    def __init__(self, log: Log) -> None:
        """Fold the entries that `log` already holds."""
        self.log = log
        self.open_tail: OpenTail | None = None
        """The tail that `frontier` was asked for last; see tail.py."""
        log.covered()
        self._changes = log.cover.follow()
        self._clear()
        self._receive_changes()

    def _clear(self) -> None:
        self.nodes: dict[EntryId, SealNode] = {}
        self.void: dict[EntryId, VoidReason] = {}
        self._badly_listed: dict[EntryId, list[EntryId]] = {}
        """Per request without a counting seal: the void seals that only one before them decides."""
        self._children: dict[EntryId | None, list[SealNode]] = {}
        """By the seal they extend. A node has none: nodes refer to their parents alone."""
        self.listed_by: dict[EntryId, SealNode] = {}
        """Per sealed entry: the first seal, in (lamport, id) order, that lists it."""
        self.unreached = Unreached(self)
        """The entries of the conversation track that no sealed request reaches."""
        self.last_coverage: LastCoverage | None = None
        self._leaves: dict[EntryId, SealNode] = {}
        self._tips: list[SealNode] | None = None
        self.open_tail = None
        self.seal_of: dict[EntryId, EntryId] = {}
        self.refusal_of: dict[EntryId, EntryId] = {}
        self.cancels, self.forks = Cancels(), Forks()
        self.left_out: set[EntryId] = set()
        """The messages that a counting seal withdrew."""
        self.sealed_ahead: dict[EntryId, SealNode | None] = {}
        """Per request behind a fork: the seal that queued.py found, until the next one counts."""
        self.requests: dict[EntryId, None] = {}
        """The requests, in the order in which they were folded."""
        self.unanswered = Unanswered()

    def receive(self, admitted: Iterable[Entry]) -> None:
        """Fold newly admitted entries, ancestors first."""
        entries = tuple(admitted)
        self._receive_changes({entry.id for entry in entries})
        for entry in self.log.meter.turns(entries):
            if self.open_tail is not None:
                extends = self.open_tail.receive(entry, self.nodes.get(entry.id))
                self.open_tail = self.open_tail if extends else None

    def _receive_changes(self, admitted: Collection[EntryId] = ()) -> None:
        """Fold the entries that became covered, ancestors first, and drop those that did not stay.

        An uncovered entry is ignored, since other replicas may lack it. All that a covered
        entry names is covered, so what is dropped decided nothing but which seal, answer
        or CANCEL comes first.
        """
        self.log.covered()
        steps, entries, turns = self._changes.read(), self.log.entries, self.log.meter.turns
        if self.open_tail is not None:
            is_cut = any(not is_covered for _, is_covered in turns(steps))
            # A seal that an entry names counts from now on, though it was held before. Of other
            # kinds the tail learns by the roles of their authors.
            came_back = any(
                is_covered and i not in admitted and entries[i].header.kind in _DECISIVE
                for i, is_covered in turns(steps)
            )
            if came_back or (is_cut and not self.open_tail.follows_cuts):
                self.open_tail = None
        for entry_id, is_covered in steps:
            self.log.meter.count()
            entry = entries[entry_id]
            if not (self._fold_in(entry) if is_covered else self._drop(entry)):
                self._refold()
                return

    def _drop(self, entry: Entry) -> bool:
        """Drop an entry that is covered no longer; return False where all is to be folded anew."""
        if entry.header.kind == Kind.REQUEST:
            self.requests.pop(entry.id, None)
            self.unanswered.discard(entry)
        self.unreached.drop(entry.id)
        self.forks.drop(entry.id)
        return entry.header.kind not in _DECISIVE

    def _refold(self) -> None:
        """Fold the covered entries from scratch, ancestors first by (lamport, id)."""
        self._clear()
        entries, covered = self.log.entries, self.log.covered()
        self._changes.read()
        for entry in self.log.meter.sorted((entries[i] for i in covered), lambda e: e.order_key):
            self.log.meter.count()
            self._fold_in(entry)

    def _fold_in(self, entry: Entry) -> bool:
        self.unreached.add(entry)
        self.forks.add(entry)
        match entry.header.kind:
            case Kind.REQUEST:
                self.requests[entry.id] = None
                self.unanswered.add(entry, _host_named(self.log.body(entry.id)))
            case Kind.SEAL:
                return self._receive_seal(entry)
            case Kind.GENERATION:
                self._receive_generation(entry)
            case Kind.CANCEL:
                self.cancels.receive(entry)
                self.cancels.withdraws |= is_withdrawal(self.log, entry)
            case _:
                pass
        return True

    def _receive_seal(self, entry: Entry) -> bool:
        seal = self.log.body(entry.id)
        assert isinstance(seal, Seal), "seals are admitted with their bodies"
        first = self.seal_of.get(seal.request)
        try:
            node = judge(self, entry, seal)
        except SealVoid as error:
            self.void[entry.id] = error.reason
            if error.reason in _AFTER_SEALED_BEFORE:
                self._badly_listed.setdefault(seal.request, []).append(entry.id)
            return True
        if first is not None:
            # If a host forks its lane, or writes in two epochs, the first seal may come late.
            return False
        self._count(node)
        return True

    def _count(self, node: SealNode) -> None:
        coverage = node.coverage
        coverage.depth_of |= dict.fromkeys(node.withdrawn, node.depth)
        self.left_out |= node.withdrawn
        for entry_id in self.log.meter.turns(node.seal.entries):
            coverage.depth_of[entry_id] = node.depth
            first = self.listed_by.setdefault(entry_id, node)
            if _comes_first(self.log, node.id, first.id):
                self.listed_by[entry_id] = node
        coverage.length = node.depth + 1
        self._children.setdefault(node.parent.id if node.parent else None, []).append(node)
        if node.parent is not None:
            self._leaves.pop(node.parent.id, None)
        self._leaves[node.id], self._tips = node, None
        self.unreached.remove(node.id)
        self.unreached.reach(node.seal.request, node.seal.entries)
        for later in self._badly_listed.pop(node.seal.request, ()):
            if _comes_first(self.log, node.id, later):
                self.void[later] = VoidReason.SEALED_BEFORE
        self.nodes[node.id] = node
        self.seal_of[node.seal.request] = node.id
        self.sealed_ahead.clear()
        # A refusal before its seal is none.
        request = self.log.entries[node.seal.request]
        self.unanswered.seal(request, _host_named(self.log.body(request.id)))

    def _receive_generation(self, entry: Entry) -> None:
        if len(entry.header.parents) != 1:
            return
        parent = entry.header.parents[0]
        node = self.nodes.get(parent)
        if node is not None and node.author == entry.header.author:
            if node.generation is None or _comes_first(self.log, entry.id, node.generation):
                node.generation, self._tips = entry.id, None
                self.unanswered.discard(self.log.entries[node.seal.request])
            return
        request = self.request(parent)
        if request is not None and request.host == entry.header.author:
            refusal = self.refusal_of.setdefault(parent, entry.id)
            if _comes_first(self.log, entry.id, refusal):
                self.refusal_of[parent] = entry.id
            if parent not in self.seal_of:
                self.unanswered.discard(self.log.entries[parent])

    def request(self, entry_id: EntryId) -> Request | None:
        """Return the body of a request; None for any other id."""
        entry = self.log.entries.get(entry_id)
        if entry is None or entry.header.kind != Kind.REQUEST:
            return None
        body = self.log.body(entry_id)
        return body if isinstance(body, Request) else None

    def resolve_basis(self, request: Entry) -> SealNode | None:
        """Return the node of a request's basis; a void one resolves to its valid ancestor."""
        basis = request.header.basis
        while basis is not None:
            node = self.nodes.get(basis)
            if node is not None:
                return node
            body = self.log.body(basis)
            basis = body.prev_seal if isinstance(body, Seal) else None
        return None

    # --- reading ---------------------------------------------------------

    def context(self, seal_id: EntryId) -> list[Entry]:
        """Return the entries listed by the chain up to a valid seal, in order."""
        return [
            self.log.entries[i] for node in self.nodes[seal_id].chain() for i in node.seal.entries
        ]

    def tips(self) -> list[SealNode]:
        """Return the leaves of the tree, the branch with the latest activity last."""
        if self._tips is None:
            self._tips = _by_activity(self.log, self._leaves.values())
        return list(self._tips)

    def children(self, node: SealNode | None) -> Sequence[SealNode]:
        """Return the seals that extend a seal, or that are the first of their chains."""
        return self._children.get(node.id if node is not None else None, ())

    def branch_end(
        self, node: SealNode | None, *, listing: EntryId | None = None
    ) -> SealNode | None:
        """Return the seal reached from `node` by the earliest child that goes on, at each step.

        With `listing`, the first of these is the earliest child that lists that entry itself,
        also where it begins a branch beside the answer.
        """
        if listing is None:
            children = _going_on(self, node)
        else:
            children = [child for child in self.children(node) if child.lists(listing)]
        while children:
            node = min(children, key=lambda n: self.log.entries[n.id].order_key)
            children = _going_on(self, node)
        return node

    def answer(self, request_id: EntryId) -> Generation | None:
        """Return the generation that answers a request, None while there is none."""
        generation_id = self.generation_of(request_id)
        body = self.log.body(generation_id) if generation_id is not None else None
        return body if isinstance(body, Generation) else None

    def generation_of(self, request_id: EntryId) -> EntryId | None:
        """Return the id of the generation or refusal that answers a request, if any."""
        seal_id = self.seal_of.get(request_id)
        if seal_id is not None:
            return self.nodes[seal_id].generation
        return self.refusal_of.get(request_id)

    def is_cancelled(self, request_id: EntryId) -> bool:
        """Say whether a visible CANCEL has the request as its only parent (spec/07-host §4)."""
        return self.cancels.is_cancelled(request_id, self.log.membership)

    def closing_cancels(self, request_id: EntryId) -> tuple[EntryId, ...]:
        """Return the CANCELs that close a request: visible, by its author or an owner."""
        return self.cancels.closing_cancels(self.log.entries[request_id], self.log.membership)


def branch_ends(order: Order) -> list[SealNode]:
    """Return the seals where branches end, the one with the latest activity last.

    These are the leaves, and those whose children are branches beside their answers.
    """
    found = (node for node in order.nodes.values() if not _going_on(order, node))
    return _by_activity(order.log, found)


def _by_activity(log: Log, nodes: Iterable[SealNode]) -> list[SealNode]:
    """Return seals by the time of their answers, or of their own."""
    entries = log.entries
    return sorted(nodes, key=lambda n: entries[n.generation or n.id].order_key)


def _going_on(order: Order, node: SealNode | None) -> Sequence[SealNode]:
    """Return the children of a seal without those that begin another branch beside its answer.

    These fork, and do not list it.
    """
    children, entries = order.children(node), order.log.entries
    answer = node.generation if node is not None else None
    if answer is None or not order.log.membership.is_visible(entries[answer]):
        return children
    return [
        child
        for child in children
        if child.lists(answer) or entries[child.seal.request].header.conflict != Conflict.FORK
    ]


def _host_named(body: Body | None) -> PublicKey | None:
    return body.host if isinstance(body, Request) else None


def _comes_first(log: Log, a: EntryId, b: EntryId) -> bool:
    return log.entries[a].order_key < log.entries[b].order_key
