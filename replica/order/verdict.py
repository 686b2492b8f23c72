"""The verdict on a seal (spec/03-order §3, ORD-7).

Pure. The verdict depends on the ancestors of the seal alone, so no later entry
changes it.
"""

from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING

from replica.ids import EntryId
from replica.log import CONTEXT_KINDS, Conflict, Entry, Kind, Membership, Seal
from replica.order.context import context_digest
from replica.order.coverage import coverage, is_answer, uncovered_closure
from replica.order.node import SealNode, coverage_up_to
from replica.order.withdrawals import is_named

if TYPE_CHECKING:
    from replica.order.tree import Order


class VoidReason(StrEnum):
    """Reason why a seal does not count (spec/03-order §3); the value is for people."""

    PARENT_NOT_REQUEST = "its parent is not its request"
    REQUEST_INVALID = "the id it names as its request is no request"
    HOST_NOT_NAMED = "its request names another host"
    HOST_NOT_MEMBER = "its author is not a host of this conversation"
    REQUEST_VOID = "its request is void"
    PREV_SEAL_VOID = "the seal it extends is void"
    BASIS_NOT_EXTENDED = "it does not extend the basis of its request"
    BRANCH_NOT_EXTENDED = "it does not extend the branch of its request's basis"
    ANSWER_SKIPPED = "its request is queued, and its list lacks the answer of the seal it extends"
    SEALED_BEFORE = "the host sealed its request before"
    COVERAGE_WRONG = "its list differs from that of the rule of coverage"
    CONTEXT_DIGEST_WRONG = "its context digest is wrong"

    @property
    def next_step(self) -> str:
        """The next step of a person who waits for the answer."""
        if self is VoidReason.SEALED_BEFORE:
            return "Wait: the answer follows the first seal."
        return "Ask again, or ask another host: this one broke a rule of the protocol."


class SealVoid(Exception):
    """The seal breaks a rule. It is admitted and void, not refused."""

    def __init__(self, reason: VoidReason) -> None:
        """Name the rule."""
        super().__init__(reason.value)
        self.reason = reason


def judge(order: "Order", entry: Entry, seal: Seal) -> SealNode:
    """Return the node of a valid seal. Raises SealVoid with the first broken rule.

    If another seal of the request counts, a valid one comes before it: all is folded anew.
    """
    log = order.log
    if entry.header.parents != (seal.request,):
        raise SealVoid(VoidReason.PARENT_NOT_REQUEST)
    body = order.request(seal.request)
    if body is None:
        raise SealVoid(VoidReason.REQUEST_INVALID)
    if body.host != entry.header.author:
        raise SealVoid(VoidReason.HOST_NOT_NAMED)
    membership, request = log.roster.at(seal.membership_heads), log.entries[seal.request]
    if not membership.is_visible(entry):
        raise SealVoid(VoidReason.HOST_NOT_MEMBER)
    if not membership.is_visible(request):
        raise SealVoid(VoidReason.REQUEST_VOID)
    parent = order.nodes.get(seal.prev_seal) if seal.prev_seal is not None else None
    if seal.prev_seal is not None and parent is None:
        raise SealVoid(VoidReason.PREV_SEAL_VOID)
    # From the seal, not from the entries held: the verdict must not depend on arrival.
    first = log.entries[seal.entries[0]]
    answer = first.id if is_answer(first, seal.prev_seal) else None
    _check_prev(order, request, parent, answer, membership)
    counts = order.seal_of.get(seal.request)
    if counts is not None and log.entries[counts].order_key < entry.order_key:
        raise SealVoid(VoidReason.SEALED_BEFORE)
    withdrawn = _check_coverage(order, seal, parent, answer, membership)
    if seal.context_digest != context_digest(log, parent, seal.entries):
        raise SealVoid(VoidReason.CONTEXT_DIGEST_WRONG)
    depth = parent.depth + 1 if parent else 0
    settled = coverage_up_to(parent)
    return SealNode(entry.id, seal, entry.header.author, parent, depth, settled, withdrawn)


def _check_coverage(
    order: "Order",
    seal: Seal,
    parent: SealNode | None,
    answer: EntryId | None,
    membership: Membership,
) -> frozenset[EntryId]:
    """Return the messages that a seal leaves out; the coverage of the last question is kept.

    Raises SealVoid for a seal that does not list its coverage. The walk ends at the first entry
    that every such list has and this one lacks, so a wrong list costs no more than a right one
    of its length.
    """
    asked = (seal.request, parent.id if parent is not None else None, answer)
    known = order.last_coverage
    if known is None or known[0] != asked or known[1] is not membership:
        if _lacks_one_for_sure(order, seal, parent, membership):
            raise SealVoid(VoidReason.COVERAGE_WRONG)
        covered = coverage(order.log, order.nodes, seal.request, parent, answer, membership)
        known = order.last_coverage = (asked, membership, covered)
    if seal.entries != known[2].entries:
        raise SealVoid(VoidReason.COVERAGE_WRONG)
    return known[2].withdrawn


def _lacks_one_for_sure(
    order: "Order", seal: Seal, parent: SealNode | None, membership: Membership
) -> bool:
    """Say whether a seal lacks an entry of its request's closure that every right list has."""
    log, listed, closure = order.log, frozenset(seal.entries), set[EntryId]()
    todo, lacks = deque([seal.request]), False
    while todo and not lacks:
        at = todo.popleft()
        if at in closure or (parent is not None and parent.covers(at)):
            continue
        closure.add(at)
        log.meter.turn()
        entry = log.entries[at]
        lacks = at not in listed and _is_surely_listed(order, entry, membership)
        todo.extend(entry.header.parents)
    order.log.meter.count(len(closure))
    return lacks


def _is_surely_listed(order: "Order", entry: Entry, membership: Membership) -> bool:
    header = entry.header
    is_context = header.kind in CONTEXT_KINDS and header.kind != Kind.GENERATION
    may_be_withdrawn = is_named(order, entry.id)
    is_alone = order.log.lane_fork(header.lane) is None
    return is_context and not may_be_withdrawn and is_alone and membership.is_visible(entry)


def _check_prev(
    order: "Order",
    request: Entry,
    parent: SealNode | None,
    answer: EntryId | None,
    membership: Membership,
) -> None:
    basis = order.resolve_basis(request)
    if request.header.conflict == Conflict.FORK:
        if parent is not basis:
            raise SealVoid(VoidReason.BASIS_NOT_EXTENDED)
        return
    if basis is not None and (parent is None or not parent.extends(basis)):
        raise SealVoid(VoidReason.BRANCH_NOT_EXTENDED)
    skips = parent is not None and answer is None
    if skips and not is_closed(order, parent, request, membership):
        raise SealVoid(VoidReason.ANSWER_SKIPPED)


def is_closed(
    order: "Order", node: SealNode | None, request: Entry, membership: Membership
) -> bool:
    """Say whether `request` reaches a CANCEL that closes the request of `node` (03 §3).

    It may then extend the seal without its answer, whether one comes or not.
    """
    if node is None:
        return False
    closing = order.cancels.closing_cancels(order.log.entries[node.seal.request], membership)
    # What the chain lists is not walked again: a CANCEL that only lies behind it closes nothing.
    if not closing:
        return False
    return not uncovered_closure(order.log, [request.id], node).isdisjoint(closing)
