"""Order: seals, branches, context, tail (spec/03-order §3).

Pure fold over a Log. A seal is a host's statement of what the model's context
is; it is checked against one rule of coverage, using only the seal's own
ancestors, so its verdict never changes with what arrives later. Seals that
count form a tree; nothing behind a seal is ever reordered.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from replica.body import Generation, Request, Seal
from replica.entry import CONTEXT_KINDS, Conflict, Entry, Kind
from replica.ids import CONTEXT_TAG, Digest, EntryId, Lane, Track, tagged_sha256
from replica.limits import PARENTS_MAX
from replica.log import Log
from replica.members import Membership

CONTEXT_SEED = tagged_sha256(CONTEXT_TAG, b"")
"""context_digest of the empty context."""


def extend_context_digest(digest: bytes, entry: Entry) -> Digest:
    """Chain one listed entry onto a context digest: previous ‖ id ‖ body digest."""
    return Digest(hashlib.sha256(digest + entry.id + entry.header.body_digest).digest())


@dataclass(slots=True)
class _Coverage:
    """Which entries a chain covers, shared along an unforked chain.

    `depth_of` maps an entry to the depth at which it was listed; a node at
    depth d sees what was listed at or above d. Only a fork copies.
    """

    depth_of: dict[EntryId, int] = field(default_factory=dict)
    length: int = 0


@dataclass(slots=True)
class SealNode:
    """One seal that counts, in the tree."""

    id: EntryId
    seal: Seal
    author: bytes
    parent: "SealNode | None"
    depth: int
    coverage: _Coverage
    children: list["SealNode"] = field(default_factory=list)
    generation: EntryId | None = None

    def covers(self, entry_id: EntryId) -> bool:
        """Say whether the chain up to and including this seal lists `entry_id`."""
        depth = self.coverage.depth_of.get(entry_id)
        return depth is not None and depth <= self.depth

    def chain(self) -> list["SealNode"]:
        """Return the chain from the first seal to this one."""
        nodes, node = [], self
        while True:
            nodes.append(node)
            if node.parent is None:
                return nodes[::-1]
            node = node.parent


class VoidReason(StrEnum):
    """Why a seal does not count (spec/03-order §3.2); the value is for people."""

    PARENT_NOT_REQUEST = "its parent is not its request"
    REQUEST_INVALID = "what it names as its request is none"
    HOST_NOT_NAMED = "its request names another host"
    HOST_NOT_MEMBER = "its author is not a host of this conversation"
    REQUEST_VOID = "its request is void"
    PREV_SEAL_VOID = "the seal it extends is void"
    BASIS_NOT_EXTENDED = "it does not extend the basis of its request"
    BRANCH_NOT_EXTENDED = "it does not extend the branch of its request's basis"
    ANSWER_SKIPPED = "a queued request goes after the answer of the seal it extends"
    COVERAGE_WRONG = "its list is not what the rule of coverage yields"
    CONTEXT_DIGEST_WRONG = "its context digest is wrong"
    SEALED_BEFORE = "the host sealed this request before"

    @property
    def next_step(self) -> str:
        """What whoever waits for an answer does now."""
        if self is VoidReason.SEALED_BEFORE:
            return "Nothing: the first seal answers."
        return "Ask again, or ask another host: this one did not keep to the rules."


class SealVoid(Exception):
    """A seal breaks a rule. Void is a verdict, not a refusal."""

    def __init__(self, reason: VoidReason) -> None:
        """Name the rule."""
        super().__init__(reason.value)
        self.reason = reason


class Order:
    """The tree of seals of one log, kept up to date by `receive`."""

    def __init__(self, log: Log) -> None:
        """Fold whatever `log` already holds."""
        self.log = log
        self._clear()
        self._refold()

    def _clear(self) -> None:
        self.nodes: dict[EntryId, SealNode] = {}
        self.void: dict[EntryId, VoidReason] = {}
        self.roots: list[SealNode] = []
        self.seal_of: dict[EntryId, EntryId] = {}
        self.refusal_of: dict[EntryId, EntryId] = {}
        self._cancels: dict[EntryId, tuple[EntryId, ...]] = {}
        self.requests: list[EntryId] = []
        self._judged_by = self.log.membership
        self._uncovered: set[EntryId] = set()

    def receive(self, admitted: Iterable[Entry]) -> None:
        """Take newly admitted entries, ancestors first."""
        if self._coverage_changed() or not all(self._receive_one(entry) for entry in admitted):
            self._refold()

    def _coverage_changed(self) -> bool:
        before, self._judged_by = self._judged_by, self.log.membership
        if before is self._judged_by:
            return False
        return bool(self._uncovered) or before.kept != self._judged_by.kept

    def _receive_one(self, entry: Entry) -> bool:
        """Fold one more entry in; False where that takes folding from scratch."""
        if not self._judged_by.covers(entry):
            # The digest does not cover it, so others may lack it: it plays no part.
            self._uncovered.add(entry.id)
            return True
        if self._uncovered and not self._uncovered.isdisjoint(self.log.named(entry)):
            return False
        return self._fold_in(entry)

    def _refold(self) -> None:
        """Fold the covered entries from scratch; (lamport, id) keeps ancestors first."""
        self._clear()
        entries, covered = self.log.entries, self.log.covered()
        self._uncovered = entries.keys() - covered
        for entry in sorted((entries[i] for i in covered), key=lambda e: e.order_key):
            self._fold_in(entry)

    def _fold_in(self, entry: Entry) -> bool:
        if entry.header.track != Track.CONVERSATION:
            return True
        match entry.header.kind:
            case Kind.REQUEST:
                self.requests.append(entry.id)
            case Kind.SEAL:
                return self._receive_seal(entry)
            case Kind.GENERATION:
                self._receive_generation(entry)
            case Kind.CANCEL:
                # One with several parents would end requests that it only comes after.
                if len(entry.header.parents) == 1:
                    request = entry.header.parents[0]
                    self._cancels[request] = (*self._cancels.get(request, ()), entry.id)
            case _:
                pass
        return True

    def _receive_seal(self, entry: Entry) -> bool:
        seal = self.log.body(entry.id)
        assert isinstance(seal, Seal), "seals are admitted with their bodies"
        first = self.seal_of.get(seal.request)
        try:
            node = self._judge(entry, seal)
        except SealVoid as error:
            self.void[entry.id] = error.reason
            return True
        if first is not None:
            # A host that forks its lane, or writes in two epochs, may show the first one late.
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
            self._keep_first(self.refusal_of, parent, entry.id)

    def _keep_first(self, table: dict[EntryId, EntryId], key: EntryId, value: EntryId) -> None:
        if key not in table or self._comes_first(value, table[key]):
            table[key] = value

    def _comes_first(self, a: EntryId, b: EntryId) -> bool:
        return self.log.entries[a].order_key < self.log.entries[b].order_key

    def request(self, entry_id: EntryId) -> Request | None:
        """Read the body of a request; None for anything else."""
        entry = self.log.entries.get(entry_id)
        if entry is None or entry.header.kind != Kind.REQUEST:
            return None
        body = self.log.body(entry_id)
        return body if isinstance(body, Request) else None

    # --- the rule of coverage --------------------------------------------

    def _judge(self, entry: Entry, seal: Seal) -> SealNode:
        """Check a seal by its ancestors alone (spec/03-order §3.2); raise SealVoid."""
        if entry.header.parents != (seal.request,):
            raise SealVoid(VoidReason.PARENT_NOT_REQUEST)
        request = self.request(seal.request)
        if request is None:
            raise SealVoid(VoidReason.REQUEST_INVALID)
        if request.host != entry.header.author:
            raise SealVoid(VoidReason.HOST_NOT_NAMED)
        membership = self.log.membership_at(seal.membership_heads)
        if not membership.is_visible(entry):
            raise SealVoid(VoidReason.HOST_NOT_MEMBER)
        if not membership.is_visible(self.log.entries[seal.request]):
            raise SealVoid(VoidReason.REQUEST_VOID)
        parent = self.nodes.get(seal.prev_seal) if seal.prev_seal is not None else None
        if seal.prev_seal is not None and parent is None:
            raise SealVoid(VoidReason.PREV_SEAL_VOID)
        answer = self._listed_answer(seal)
        self._check_prev(self.log.entries[seal.request], parent, answer)
        if seal.entries != self.coverage(seal.request, parent, answer, membership):
            raise SealVoid(VoidReason.COVERAGE_WRONG)
        if seal.context_digest != self.context_digest(parent, seal.entries):
            raise SealVoid(VoidReason.CONTEXT_DIGEST_WRONG)
        depth = parent.depth + 1 if parent else 0
        return SealNode(
            entry.id, seal, entry.header.author, parent, depth, _coverage_behind(parent)
        )

    def _listed_answer(self, seal: Seal) -> EntryId | None:
        # Read off the seal, not off what has arrived: the verdict must not depend on arrival.
        return seal.entries[0] if self._is_answer(seal.entries[0], seal.prev_seal) else None

    def _check_prev(self, request: Entry, parent: SealNode | None, answer: EntryId | None) -> None:
        basis = self.resolve_basis(request)
        if request.header.conflict == Conflict.FORK:
            if parent is not basis:
                raise SealVoid(VoidReason.BASIS_NOT_EXTENDED)
            return
        if basis is not None and (parent is None or basis not in parent.chain()):
            raise SealVoid(VoidReason.BRANCH_NOT_EXTENDED)
        if parent is not None and answer is None:
            raise SealVoid(VoidReason.ANSWER_SKIPPED)

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

    def coverage(
        self,
        request: EntryId,
        parent: SealNode | None,
        answer: EntryId | None,
        membership: Membership,
    ) -> tuple[EntryId, ...]:
        """Return what a seal of `request` on `parent` lists, in order (spec/03-order §3.2).

        The closure of the request through parents, as far as the chain does
        not cover it, visible entries of context kinds only, in (lamport, id)
        order, answers of `parent` before all others. A queued request takes
        `answer`, a generation of `parent`, in even where its closure does not.
        """
        closure = self._uncovered_closure(request, parent)
        entries = self.log.entries
        if answer is not None and entries[request].header.conflict == Conflict.QUEUE:
            closure.add(answer)
        forks = self._forks(closure)
        listed = [
            i
            for i in closure
            if entries[i].header.kind in CONTEXT_KINDS
            and (i == request or self._may_list(entries[i], membership, forks))
        ]
        tip = parent.id if parent is not None else None
        return tuple(
            sorted(listed, key=lambda i: (not self._is_answer(i, tip), *entries[i].order_key))
        )

    def _is_answer(self, entry_id: EntryId, seal_id: EntryId | None) -> bool:
        header = self.log.entries[entry_id].header
        return header.kind == Kind.GENERATION and header.parents == (seal_id,)

    def _uncovered_closure(self, request: EntryId, parent: SealNode | None) -> set[EntryId]:
        seen: set[EntryId] = set()
        todo = [request]
        while todo:
            entry_id = todo.pop()
            if entry_id in seen or (parent is not None and parent.covers(entry_id)):
                continue
            seen.add(entry_id)
            todo += self.log.entries[entry_id].header.parents
        return seen

    def _forks(self, closure: set[EntryId]) -> dict[Lane, int]:
        """Return per forked lane the first position that two entries of the closure share."""
        at: dict[tuple[Lane, int], EntryId] = {}
        forks: dict[Lane, int] = {}
        for entry_id in closure:
            header = self.log.entries[entry_id].header
            if at.setdefault((header.lane, header.seq), entry_id) != entry_id:
                forks[header.lane] = min(header.seq, forks.get(header.lane, header.seq))
        return forks

    def _may_list(self, entry: Entry, membership: Membership, forks: dict[Lane, int]) -> bool:
        # Bodies play no part: one that is missing or malformed here may be read elsewhere.
        header = entry.header
        fork = forks.get(header.lane)
        if fork is not None and header.seq >= fork:
            return False
        if not membership.is_visible(entry):
            return False
        if header.kind != Kind.GENERATION:
            return True
        # A refusal (parent: the request), an answer to a void seal and one
        # that another host wrote under this seal are no context.
        node = self.nodes.get(header.parents[0]) if len(header.parents) == 1 else None
        return node is not None and node.author == header.author

    def context_digest(self, parent: SealNode | None, entries: Iterable[EntryId]) -> Digest:
        """Chain `entries` onto the digest of `parent`'s context."""
        digest = parent.seal.context_digest if parent else CONTEXT_SEED
        for entry_id in entries:
            digest = extend_context_digest(digest, self.log.entries[entry_id])
        return digest

    # --- reading ---------------------------------------------------------

    def context(self, seal_id: EntryId) -> list[Entry]:
        """Return the entries a counting seal's chain yields, in order."""
        return [
            self.log.entries[i] for node in self.nodes[seal_id].chain() for i in node.seal.entries
        ]

    def tips(self) -> list[SealNode]:
        """Return the leaves of the tree, the branch with the latest activity last."""
        leaves = [node for node in self.nodes.values() if not node.children]
        return sorted(leaves, key=self._activity)

    def _activity(self, node: SealNode) -> tuple[int, EntryId]:
        return self.log.entries[node.generation or node.id].order_key

    def branch_end(self, node: SealNode | None) -> SealNode | None:
        """Return the leaf reached from `node` by always taking the earliest child."""
        children = node.children if node is not None else self.roots
        while children:
            node = min(children, key=lambda n: self.log.entries[n.id].order_key)
            children = node.children
        return node

    def answer(self, request_id: EntryId) -> Generation | None:
        """Return what answered a request, if anything did yet."""
        generation_id = self.generation_of(request_id)
        body = self.log.body(generation_id) if generation_id is not None else None
        return body if isinstance(body, Generation) else None

    def generation_of(self, request_id: EntryId) -> EntryId | None:
        """Return the id of the generation or refusal that answered a request."""
        seal_id = self.seal_of.get(request_id)
        if seal_id is not None:
            return self.nodes[seal_id].generation
        return self.refusal_of.get(request_id)

    def is_cancelled(self, request_id: EntryId) -> bool:
        """Say whether a visible CANCEL has the request as its only parent (spec/07-host §4).

        May be asked from another thread than the one that folds.
        """
        # An immutable fold: `log.membership` may have to be folded first.
        membership, entries = self._judged_by, self.log.entries
        return any(membership.is_visible(entries[i]) for i in self._cancels.get(request_id, ()))

    def tail(self, tip: SealNode | None) -> list[Entry]:
        """Return what follows `tip` and is not sealed yet, in (lamport, id) order."""
        unsealed = self._unsealed_behind(self._start_behind(tip))
        if tip is not None and tip.generation is not None:
            unsealed |= self._said_meanwhile(tip.seal.request)
        entries = map(self.log.entries.__getitem__, unsealed)
        return sorted(filter(self.is_said, entries), key=_order_key)

    def _start_behind(self, tip: SealNode | None) -> EntryId:
        if tip is None:
            return EntryId(self.log.conversation)
        return tip.generation or tip.seal.request

    def _unsealed_behind(self, start: EntryId) -> set[EntryId]:
        log = self.log
        sealed = {i for node in self.nodes.values() for i in node.seal.entries}
        seen: set[EntryId] = set()
        todo = list(log.children.get(start, ()))
        while todo:
            entry_id = todo.pop()
            header = log.entries[entry_id].header
            if entry_id in seen or entry_id in sealed or header.track != Track.CONVERSATION:
                continue
            if header.kind == Kind.SEAL:
                continue
            seen.add(entry_id)
            todo += log.children.get(entry_id, ())
        return seen

    def _said_meanwhile(self, request: EntryId) -> set[EntryId]:
        """Return what was typed behind a request while its answer came.

        Without what a further request asks about: that goes where its conflict says.
        """
        unsealed = self._unsealed_behind(request)
        entries = self.log.entries
        # Only what counts: another replica may not hold what a cut left out.
        requests = (e for i in unsealed if (e := entries[i]).header.kind == Kind.REQUEST)
        todo = [request.id for request in requests if self.is_said(request)]
        while todo:
            entry_id = todo.pop()
            if entry_id in unsealed:
                unsealed.discard(entry_id)
                todo += entries[entry_id].header.parents
                todo += self.log.children.get(entry_id, ())
        return unsealed

    def is_said(self, entry: Entry) -> bool:
        """Say whether an entry stands in a tail: visible, readable, and of a writer or a host.

        What any role may write, a reader could fill the next entry's parents with.
        """
        header, membership = entry.header, self.log.membership
        if header.kind == Kind.JOIN:
            may_stand = membership.may_write(header.author, Kind.MESSAGE)
        else:
            may_stand = header.kind in CONTEXT_KINDS
        return may_stand and membership.is_visible(entry) and not self.log.is_malformed(entry.id)

    def frontier(self, tip: SealNode | None) -> tuple[EntryId, ...]:
        """Return the parents for the next entry on `tip`'s branch, ascending; at most 64."""
        start = self.log.entries[self._start_behind(tip)]
        return self.ends([start, *self.tail(tip)])

    def ends(self, said: Iterable[Entry]) -> tuple[EntryId, ...]:
        """Return which of these entries none of them follows, ascending: the last 64."""
        entries = {entry.id: entry for entry in said}
        first = min((e.header.lamport for e in entries.values()), default=0)
        seen: set[EntryId] = set()
        todo = [parent for entry in entries.values() for parent in entry.header.parents]
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            header = self.log.entries[at].header
            # One of them looks further by itself; below the first there is none.
            if at not in entries and header.lamport > first:
                todo += header.parents
        ends = sorted((e for e in entries.values() if e.id not in seen), key=_order_key)
        return tuple(sorted(e.id for e in ends[-PARENTS_MAX:]))


def _order_key(entry: Entry) -> tuple[int, EntryId]:
    return entry.order_key


def _coverage_behind(parent: SealNode | None) -> _Coverage:
    if parent is None:
        return _Coverage()
    shared = parent.coverage
    if shared.length == parent.depth + 1:
        return shared
    # A sibling has extended the shared map already: take the part up to the fork.
    return _Coverage({i: d for i, d in shared.depth_of.items() if d <= parent.depth})
