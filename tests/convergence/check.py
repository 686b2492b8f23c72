"""The claim: the covered entries alone, in send order, give the digest and view of all entries."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from replica.conversation.conversation import Conversation
from replica.log.entry import Entry
from tests.convergence.unruly import Deep, Unruly
from tests.simulation.oracle.agreement import View, view_of

STEPS = 60
DEEP = 10
"""One of so many logs has long chains of seals."""


@dataclass(frozen=True, slots=True)
class State:
    """All that replicas with equal digests must agree on."""

    view: View
    digest: bytes
    members: tuple[tuple[bytes, tuple[int, ...]], ...]
    membership_heads: tuple[bytes, ...]
    document: bytes
    document_heads: tuple[bytes, ...]


def state_of(held: Conversation) -> State:
    """Return the state of one holder."""
    membership = held.log.membership
    members = (
        (key, tuple(sorted(roles)))
        for key, roles in membership.roles.items()
        if membership.is_member(key)
    )
    return State(
        view_of(held),
        held.log.digest,
        tuple(sorted(members)),
        held.log.membership_heads(),
        held.document.projection.digest,
        held.document.heads,
    )


def holder_of(held: Conversation, entries: Iterable[Entry]) -> Conversation:
    """Return a fresh replica that received these, one by one."""
    fresh = Conversation(held.id)
    for entry in entries:
        fresh.admit(entry, verified=True)
        fresh.document.heads  # noqa: B018  # it is read entry by entry, and not built at the end
    return fresh


def check(seed: int, steps: int = STEPS) -> Counter[str]:
    """Check one random log; return what it had. Raises AssertionError."""
    story = Unruly(seed) if seed % DEEP else Deep(seed)
    story.grow(steps)
    held, log = story.held, story.held.log
    expected = state_of(held)
    alone = holder_of(held, log.in_send_order(log.covered()))
    assert not alone.log.pending, f"seed {seed}: the covered entries are not complete"
    assert state_of(alone) == expected, f"seed {seed}: the covered entries give another view"
    everything = [*log.entries.values(), *log.pending.values()]
    random.Random(seed).shuffle(everything)
    shuffled = state_of(holder_of(held, everything))
    assert shuffled == expected, f"seed {seed}: the order of arrival matters"
    return _counts(held)


def _counts(held: Conversation) -> Counter[str]:
    log, membership = held.log, held.log.membership
    depth = max((node.depth for node in held.order.nodes.values()), default=-1) + 1
    found = {
        "logs": 1,
        "entries": len(log),
        "uncovered": len(log) - len(log.covered()),
        "pending": len(log.pending),
        "revoked keys": len(membership.kept),
        "resignations": len(membership.resignations),
        "forked lanes": len(log.equivocations()),
        "seals": len(held.order.nodes),
        "seals in the longest chains": depth,
        "branches": len(held.order.tips()),
    }
    return Counter(found)
