"""The next seal a host may write (spec/03-order §4), by the rule of coverage."""

from dataclasses import dataclass

from replica.conversation.conversation import Conversation
from replica.ids import Digest, EntryId, PublicKey
from replica.log import Conflict, Entry
from replica.order import (
    Order,
    SealNode,
    context_digest,
    coverage,
    is_closed,
    queued_behind,
)


@dataclass(frozen=True, slots=True)
class Sealable:
    """A request whose turn has come, with the content of its seal."""

    request: EntryId
    parent: SealNode | None
    entries: tuple[EntryId, ...]
    membership_heads: tuple[EntryId, ...]
    context_digest: Digest


def open_requests(held: Conversation, host: PublicKey) -> list[EntryId]:
    """Return the unanswered requests that name `host`, in (lamport, id) order.

    A sealed request is included even if its author was revoked since: the seal counts,
    and its branch can't continue without an answer.
    """
    order, log = held.order, held.log
    return [
        request
        for request in order.unanswered.naming(host)
        if request in order.seal_of or log.membership.is_visible(log.entries[request])
    ]


def sealable(held: Conversation, request_id: EntryId) -> Sealable | None:
    """Return the seal that this request may get now, None for none (ORD-11).

    Only one that `may_be_sealed` gets one.
    """
    return seal_by_coverage(held, request_id) if may_be_sealed(held, request_id) else None


def seal_by_coverage(held: Conversation, request_id: EntryId) -> Sealable | None:
    """Return the seal that coverage gives a request, whoever may write it; None while it waits.

    A request waits while the seal it would extend has no answer, unless it follows
    a CANCEL that closes the request of that seal. A queued request goes to the end
    of its branch, and waits while a forking request that begins this may get its seal
    from the same host. If the answer there is void it waits for good, unless the
    request is closed likewise. The caller first joins surplus membership heads
    (`Roster.heads_to_join`), and seals only a list that fits.
    """
    order, log = held.order, held.log
    entry = log.entries[request_id]
    parent = order.resolve_basis(entry)
    queues = entry.header.conflict == Conflict.QUEUE
    if queues:
        ahead = queued_behind(order, entry.header.parents, parent)
        fork = ahead.fork if ahead.has_left else None
        if fork is not None and _name_one_host(order, entry, fork):
            return None
        parent = ahead.node
    heads = log.membership_heads()
    membership = log.roster.at(heads)
    closed = is_closed(order, parent, entry, membership)
    answer = parent.generation if parent is not None else None
    if parent is not None and answer is None and not closed:
        return None
    entries = coverage(log, order.nodes, request_id, parent, answer, membership).entries
    if queues and answer is not None and answer not in entries:
        if not closed:
            return None
        entries = coverage(log, order.nodes, request_id, parent, None, membership).entries
    digest = context_digest(log, parent, entries)
    return Sealable(request_id, parent, entries, heads, digest)


def _name_one_host(order: Order, *requests: Entry) -> bool:
    """Say whether requests name the same host. One that another is to answer blocks nobody."""
    bodies = [order.request(request.id) for request in requests]
    return len({body.host if body is not None else None for body in bodies}) == 1


def may_be_sealed(held: Conversation, request_id: EntryId) -> bool:
    """Say whether a request may get a seal, now or once it waits no more (ORD-11).

    It is visible, names a host, and has neither a seal nor an answer.
    """
    order, membership = held.order, held.log.membership
    body, request = order.request(request_id), held.log.entries[request_id]
    is_open = request.id not in order.seal_of and order.generation_of(request.id) is None
    return (
        is_open
        and body is not None
        and membership.is_host(body.host)
        and membership.is_visible(request)
    )
