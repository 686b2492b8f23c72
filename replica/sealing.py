"""What a host may seal next (spec/03-order §4): the writing side of the rule of coverage."""

from dataclasses import dataclass

from replica.conversation import Conversation
from replica.entry import Conflict
from replica.ids import Digest, EntryId, PublicKey
from replica.limits import SEAL_ENTRIES_MAX
from replica.order import SealNode


@dataclass(frozen=True, slots=True)
class Sealable:
    """A request whose turn has come, with what its seal lists."""

    request: EntryId
    parent: SealNode | None
    entries: tuple[EntryId, ...]
    membership_heads: tuple[EntryId, ...]
    context_digest: Digest

    @property
    def fits_a_seal(self) -> bool:
        """Say whether one seal may list so many; else the host refuses the request."""
        return len(self.entries) <= SEAL_ENTRIES_MAX


def open_requests(held: Conversation, host: PublicKey) -> list[EntryId]:
    """Return requests that name `host` and wait for its answer, in (lamport, id) order.

    One that is sealed waits even if its author was revoked since: the seal
    stands, and its branch can't go on without an answer.
    """
    order, log = held.order, held.log
    waiting = []
    for request_id in order.requests:
        request = order.request(request_id)
        if request is None or request.host != host:
            continue
        if order.generation_of(request_id) is not None:
            continue
        if request_id in order.seal_of or log.membership.is_visible(log.entries[request_id]):
            waiting.append(request_id)
    return sorted(waiting, key=lambda i: log.entries[i].order_key)


def sealable(held: Conversation, request_id: EntryId) -> Sealable | None:
    """Return what a seal of this request would state, or None while its branch is busy.

    A request waits while its basis is being answered; one that queues waits
    for whatever its branch is answering, and for good where that answer is
    void. One that forks goes ahead beside it. The caller first gathers surplus
    membership heads (`Log.membership_heads_to_join`), and seals only what fits.
    """
    order, log = held.order, held.log
    entry = log.entries[request_id]
    parent = order.resolve_basis(entry)
    queues = entry.header.conflict == Conflict.QUEUE
    if queues:
        parent = order.branch_end(parent)
    answer = parent.generation if parent is not None else None
    if parent is not None and answer is None:
        return None
    heads = log.membership_heads()
    membership = log.membership_at(heads)
    entries = order.coverage(request_id, parent, answer, membership)
    if queues and answer is not None and answer not in entries:
        return None
    return Sealable(request_id, parent, entries, heads, order.context_digest(parent, entries))
