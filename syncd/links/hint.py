"""Hints: the positions a level-1 client needs for its next append (spec/04-link §9).

Pure. A hint is computed in the step that checks the reader's membership
(DECISIONS D33). Computed later, it could name entries that are not durable yet,
or that were written after the reader was revoked.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from replica import limits
from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.log import Conflict, Entry, Kind
from replica.order import SealNode, frontier, queued_behind


@dataclass(frozen=True, slots=True)
class OwnHead:
    """The last entry of one of the reader's own lanes, with its lamport."""

    position: Position
    lamport: int


@dataclass(frozen=True, slots=True)
class Hint:
    """The place of one author's next entry; `tip` is also its basis."""

    conversation: ConversationId
    tip: EntryId | None
    parents: tuple[EntryId, ...]
    lamport: int
    """The lamport of an entry on a fresh lane."""
    own_heads: tuple[OwnHead, ...]
    membership_heads: tuple[EntryId, ...]
    open_request: EntryId | None = None
    """A request of the tip's branch that still gets an answer."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A request has its answer; without a seal it was refused."""

    conversation: ConversationId
    request: EntryId
    seal: EntryId | None
    generation: EntryId


def hint_for(held: Conversation, author: PublicKey) -> Hint:
    """Return the place of an author's next entry, after the newest seal that counts."""
    log, order = held.log, held.order
    tips = order.tips()
    tip = tips[-1] if tips else None
    parents = frontier(order, tip)
    named = [*parents, *([tip.id] if tip else [])]
    lanes = reversed(log.lanes_of(author))
    own = (i for lane in lanes for i in log.lane_last_tips(lane, limits.FORK_HEADS_MAX))
    # A reader's entry that was refused is not durable for anybody (ORD-13).
    covered = log.covered()
    heads = [log.entries[i] for i in islice(own, limits.OWN_HEADS_MAX) if i in covered]
    return Hint(
        held.id,
        tip.id if tip else None,
        tuple(parents),
        1 + max(log.entries[i].header.lamport for i in named),
        tuple(OwnHead(e.position, e.header.lamport) for e in sorted(heads, key=_position)),
        log.membership_heads(),
        _open_request(held, tip),
    )


def _position(entry: Entry) -> Position:
    return entry.position


def _open_request(held: Conversation, tip: SealNode | None) -> EntryId | None:
    """Return the request that is being answered, else the first that will be, behind `tip`."""
    order = held.order
    if tip is not None and tip.generation is None and not order.closing_cancels(tip.seal.request):
        # Behind a host that is gone, all wait until a CANCEL closes the tip's request.
        return tip.seal.request if held.log.membership.is_host(tip.author) else None
    latest = tuple(islice(order.unanswered.latest_unsealed(), limits.OPEN_LOOKED_AT))
    unsealed = (held.log.entries[i] for i in reversed(latest))
    return next((entry.id for entry in unsealed if _will_extend(held, entry, tip)), None)


def _will_extend(held: Conversation, request: Entry, tip: SealNode | None) -> bool:
    """Say whether the seal of a request without one will extend `tip` (ORD-11)."""
    order, membership, body = held.order, held.log.membership, held.order.request(request.id)
    if body is None or not membership.is_host(body.host):
        return False
    if not membership.is_visible(request) or order.closing_cancels(request.id):
        return False
    basis = order.resolve_basis(request)
    if request.header.conflict == Conflict.QUEUE:
        basis = queued_behind(order, request.header.parents, basis).node
    return basis is tip


def answers(held: Conversation, entries: Iterable[Entry]) -> tuple[Answered, ...]:
    """Return which requests these entries answer, or refuse for good."""
    found = (_answer(held, e) for e in entries if e.header.kind == Kind.GENERATION)
    return tuple(one for one in found if one is not None)


def _answer(held: Conversation, entry: Entry) -> Answered | None:
    order, parent = held.order, entry.header.parents[0]
    node = order.nodes.get(parent)
    if node is not None:
        request, seal = node.seal.request, node.id
        is_first = node.generation == entry.id
        return Answered(held.id, request, seal, entry.id) if is_first else None
    if order.generation_of(parent) != entry.id:
        return None
    return Answered(held.id, parent, None, entry.id)
