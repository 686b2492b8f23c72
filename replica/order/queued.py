"""The seal that a queued request extends (spec/03-order §4, ORD-11). Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from replica.ids import EntryId
from replica.log import Entry
from replica.order.node import SealNode
from replica.order.tree import Order


@dataclass(frozen=True, slots=True)
class Ahead:
    """The end of the branch on which a queued request goes on."""

    node: SealNode | None
    fork: Entry | None = None
    """The forking request it follows that begins this branch, while no seal lists it there."""


def queued_behind(order: Order, parents: Iterable[EntryId], basis: SealNode | None) -> Ahead:
    """Return the end of the branch for a queued request with these parents and this basis.

    From the basis the earliest children lead on, as far as these do not leave the branch
    that the last forking request among its ancestors began.
    """
    end = order.branch_end(basis)
    fork = order.forks.last(parents)
    if fork is None or (end is not None and end.covers(fork.id)):
        return Ahead(end)
    base = order.resolve_basis(fork)
    if basis is not None and (base is None or not base.extends(basis)):
        return Ahead(end)  # a seal on that branch would not extend the basis
    end = order.branch_end(base, listing=fork.id)
    return Ahead(end, fork if end is base else None)
