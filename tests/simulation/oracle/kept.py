"""The claim that each message is in a context, in a tail, or on a branch of its own (ORD-10)."""

from collections.abc import Collection, Iterable

from antiphon.conformance.naive_members import NaiveMembership
from antiphon.conformance.naive_order import NaiveOrder
from antiphon.conformance.naive_tail import ancestors, forks_or_is_open
from replica.ids import EntryId
from replica.log.kinds import Kind
from tests.simulation.oracle.history import RecordedLog, Violation, short


def check_kept(
    log: RecordedLog,
    order: NaiveOrder,
    state: NaiveMembership,
    visible: Collection[EntryId],
    tails: Iterable[Iterable[EntryId]],
) -> None:
    """Raise Violation for a visible message that no later context can have.

    `tails` are those of all tips. A request that forks or is open has what it follows, and
    what follows it; a sealed one decided about all that it reaches. What follows two branches
    is in the tail of a tip that it descends from, and late nowhere.
    """
    messages = {i for i in visible if log.entries[i].header.kind == Kind.MESSAGE}
    sealed = {log.body(seal).request for seal in order.chains}
    messages -= ancestors(log, sealed)
    messages.difference_update(*tails)
    opened = {
        i
        for i in visible
        if log.entries[i].header.kind == Kind.REQUEST and i not in sealed
        if forks_or_is_open(log, order, state, log.entries[i])
    }
    messages -= ancestors(log, opened)
    lost = {
        i
        for i in messages
        if opened.isdisjoint(ancestors(log, [i])) and not _follows_two(log, order, i)
    }
    if lost:
        raise Violation(f"no context, tail or branch has {short(lost)}")


def _follows_two(log: RecordedLog, order: NaiveOrder, message: EntryId) -> bool:
    """Say whether each branch lacks a seal, or a request with one, that a message reaches."""
    sealed = {log.body(seal).request for seal in order.chains}
    for chain in order.chains.values():
        listed = {i for seal in chain for i in log.body(seal).entries}
        reached = ancestors(log, [message], until=listed)
        if reached.isdisjoint(sealed | (order.chains.keys() - chain)):
            return False
    return bool(order.chains)
