"""Order: the tree of seals, with its branches and contexts (spec/03-order §3).

A pure fold over a Log. A seal is a host's statement of the model's context. The
valid seals form a tree, and the entries behind a seal are never reordered.
"""

from collections.abc import Iterable

from replica.ids import EntryId
from replica.log import Entry, Generation, Kind, Log, Request, Seal
from replica.order.cancels import Cancels
from replica.order.node import SealNode
from replica.order.verdict import SealVoid, VoidReason, judge


class Order:
    """The tree of seals of one log, kept up to date by `receive`."""

    def __init__(self, log: Log) -> None:
        """Fold the entries that `log` already holds."""
        self.log = log
        self._clear()
        self._refold()

    def _clear(self) -> None:
        self.nodes: dict[EntryId, SealNode] = {}
        self.void: dict[EntryId, VoidReason] = {}
        self.roots: list[SealNode] = []
        self.seal_of: dict[EntryId, EntryId] = {}
        self.refusal_of: dict[EntryId, EntryId] = {}
        self.cancels = Cancels()
        self.requests: list[EntryId] = []
        self._judged_by = self.log.membership
        self._uncovered: set[EntryId] = set()

    def receive(self, admitted: Iterable[Entry]) -> None:
        """Fold newly admitted entries, ancestors first."""
        if self._coverage_changed() or not all(self._receive_one(entry) for entry in admitted):
            self._refold()

    def _coverage_changed(self) -> bool:
        before, self._judged_by = self._judged_by, self.log.membership
        if before is self._judged_by:
            return False
        return bool(self._uncovered) or before.kept != self._judged_by.kept

    def _receive_one(self, entry: Entry) -> bool:
        """Fold one more entry; return False where the fold must start from scratch."""
        if not self._judged_by.covers(entry):
            # The digest does not cover it, so other replicas may lack it: it is ignored.
            self._uncovered.add(entry.id)
            return True
        if self._uncovered and not self._uncovered.isdisjoint(self.log.named(entry.id)):
            return False
        return self._fold_in(entry)

    def _refold(self) -> None:
        """Fold the covered entries from scratch, ancestors first by (lamport, id)."""
        self._clear()
        entries, covered = self.log.entries, self.log.covered()
        self._uncovered = entries.keys() - covered
        for entry in sorted((entries[i] for i in covered), key=lambda e: e.order_key):
            self._fold_in(entry)

    def _fold_in(self, entry: Entry) -> bool:
        match entry.header.kind:
            case Kind.REQUEST:
                self.requests.append(entry.id)
            case Kind.SEAL:
                return self._receive_seal(entry)
            case Kind.GENERATION:
                self._receive_generation(entry)
            case Kind.CANCEL:
                self.cancels.receive(entry)
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
            return True
        if first is not None:
            # If a host forks its lane, or writes in two epochs, the first seal may come late.
            self.void[entry.id] = VoidReason.SEALED_BEFORE
            return not self._comes_first(entry.id, first)
        self._count(node)
        return True

    def _count(self, node: SealNode) -> None:
        coverage = node.coverage
        for entry_id in node.seal.entries:
            coverage.depth_of[entry_id] = node.depth
        coverage.length = node.depth + 1
        (node.parent.children if node.parent else self.roots).append(node)
        self.nodes[node.id] = node
        self.seal_of[node.seal.request] = node.id

    def _receive_generation(self, entry: Entry) -> None:
        if len(entry.header.parents) != 1:
            return
        parent = entry.header.parents[0]
        node = self.nodes.get(parent)
        if node is not None and node.author == entry.header.author:
            if node.generation is None or self._comes_first(entry.id, node.generation):
                node.generation = entry.id
            return
        request = self.request(parent)
        if request is not None and request.host == entry.header.author:
            refusal = self.refusal_of.setdefault(parent, entry.id)
            if self._comes_first(entry.id, refusal):
                self.refusal_of[parent] = entry.id

    def _comes_first(self, a: EntryId, b: EntryId) -> bool:
        return self.log.entries[a].order_key < self.log.entries[b].order_key

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
        leaves = [node for node in self.nodes.values() if not node.children]
        entries = self.log.entries
        return sorted(leaves, key=lambda node: entries[node.generation or node.id].order_key)

    def branch_end(self, node: SealNode | None) -> SealNode | None:
        """Return the leaf reached from `node` by the earliest child at each step."""
        children = node.children if node is not None else self.roots
        while children:
            node = min(children, key=lambda n: self.log.entries[n.id].order_key)
            children = node.children
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
