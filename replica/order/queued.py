"""The seal that a queued request extends (spec/03-order §4, ORD-11). Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from replica.ids import EntryId
from replica.log import Entry
from replica.order.forks import Fork
from replica.order.node import SealNode
from replica.order.tree import Order


@dataclass(frozen=True, slots=True)
class Ahead:
    """The end of the branch on which a queued request goes on."""

    node: SealNode | None
    fork: Entry | None = None
    """The forking request that begins this branch behind `node`, while it may still be sealed."""


def queued_behind(order: Order, parents: Iterable[EntryId], basis: SealNode | None) -> Ahead:
    """Return the end of the branch for a queued request with these parents and this basis.

    From the basis the earliest children lead on, unless these leave the branch that the
    last forking request among its ancestors began.
    """
    end = order.branch_end(basis)
    fork = order.forks.behind(parents)
    if fork is None:
        return Ahead(end)
    base = order.resolve_basis(fork.begun_by)
    # A seal behind a basis further back would not extend the one of the request.
    if end is base or not _extends(base, basis):
        return Ahead(end)
    return _on_branch(order, fork, base)


def _on_branch(order: Order, fork: Fork, base: SealNode | None) -> Ahead:
    begun_by, at = fork.begun_by, fork
    while True:
        seal = order.seal_of.get(at.last.id)
        node = order.nodes[seal] if seal is not None else None
        if node is not None and _extends(node, base):
            return Ahead(order.branch_end(node))
        if at.last.id == begun_by.id:
            break
        order.log.meter.turn()
        before = order.forks.behind(at.last.header.parents)
        assert before is not None, "it follows the fork"
        at = before
    end = order.branch_end(base, listing=begun_by.id)
    return Ahead(end, begun_by if end is base and _is_open(order, begun_by) else None)


def _extends(node: SealNode | None, base: SealNode | None) -> bool:
    return base is None or (node is not None and node.extends(base))


def _is_open(order: Order, request: Entry) -> bool:
    """Say whether a request without a seal is visible, and neither refused nor closed."""
    is_ended = order.generation_of(request.id) is not None or order.closing_cancels(request.id)
    return not is_ended and order.log.membership.is_visible(request)
