"""The seal that a queued request extends (spec/03-order §4, ORD-11). Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from replica.ids import EntryId
from replica.log import Entry
from replica.order.forks import Fork
from replica.order.node import SealNode
from replica.order.tree import Order
from replica.order.withdrawals import first_closing


@dataclass(frozen=True, slots=True)
class Ahead:
    """The end of the branch on which a queued request goes on."""

    node: SealNode | None
    fork: Entry | None = None
    """The forking request that begins a branch right behind `node`, while it may be sealed."""
    has_left: bool = False
    """Whether another branch goes on behind `node`, so that the request waits for `fork`."""


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
    if not _extends(base, basis):
        return Ahead(end)
    has_left = end is not base
    if has_left:
        sealed = _sealed_ahead(order, fork, base)
        if sealed is not None:
            return Ahead(order.branch_end(sealed))
        end = order.branch_end(base, listing=fork.begun_by.id)
    waits = end is base and _is_open(order, fork.begun_by)
    return Ahead(end, fork.begun_by if waits else None, has_left and waits)


def begun_behind(
    order: Order, parents: Iterable[EntryId], basis: SealNode | None, end: SealNode | None
) -> Entry | None:
    """Return the forking request that begins the branch of a queued request right behind `end`.

    It need not be open. `end` is the end that `queued_behind` returns for the request.
    """
    fork = order.forks.behind(parents)
    if fork is None:
        return None
    base = order.resolve_basis(fork.begun_by)
    return fork.begun_by if base is end and _extends(base, basis) else None


def _sealed_ahead(order: Order, fork: Fork, base: SealNode | None) -> SealNode | None:
    """Return the seal of the nearest request ahead, back to the forking one, on its branch.

    What is found for a request counts until the next seal does: it is looked for again and again
    by those who watch a log, and many requests may wait one behind the other.
    """
    passed, at = list[EntryId](), fork
    while at.last.id not in order.sealed_ahead:
        passed.append(at.last.id)
        seal = order.seal_of.get(at.last.id)
        node = order.nodes[seal] if seal is not None else None
        is_on_branch = node is not None and _extends(node, base)
        if is_on_branch or at.last.id == fork.begun_by.id:
            order.sealed_ahead[at.last.id] = node if is_on_branch else None
            break
        order.log.meter.turn()
        before = order.forks.behind(at.last.header.parents)
        assert before is not None, "it follows the fork"
        at = before
    found = order.sealed_ahead[at.last.id]
    order.sealed_ahead |= dict.fromkeys(passed, found)
    return found


def _extends(node: SealNode | None, base: SealNode | None) -> bool:
    return base is None or (node is not None and node.extends(base))


def _is_open(order: Order, request: Entry) -> bool:
    """Say whether a request without a seal is visible, and neither refused nor closed."""
    is_answered = order.generation_of(request.id) is not None
    is_ended = is_answered or first_closing(order, request.id) is not None
    return not is_ended and order.log.membership.is_visible(request)
