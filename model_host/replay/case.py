"""What a replay reads of a conversation: its seals, and the answers to check (spec/07-host §10).

Pure. `collect` reads the conversation and returns immutable values, so that a replay may run
in other threads while entries are admitted.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from model_host.errors import ReplayTooLarge
from model_host.generation import listing_of
from model_host.refusals import BodyUnavailable
from model_host.rendering import ContextItem, Listing
from replica.conversation import Conversation
from replica.ids import ConversationId, Digest, EntryId, short
from replica.limits import REPLAY_ENTRIES_MAX
from replica.log import Generation, Kind, Request, Seal
from replica.order import SealNode
from replica.refusals import ArgumentInvalid


@dataclass(frozen=True, slots=True)
class Case:
    """One answer of the log, with the request and the seal it belongs to."""

    entry: EntryId
    seal_id: EntryId
    request_id: EntryId
    request: Request
    seal: Seal
    recorded: Generation | None
    """None if its body is missing here."""
    is_cancelled: bool
    """Whether the log has a CANCEL of the request."""


@dataclass(frozen=True, slots=True)
class SealedContext:
    """One seal: what it adds to the context of its parent, and its answer if that is checked."""

    seal_id: EntryId
    seal: Seal
    parent: EntryId | None
    listing: Listing | BodyUnavailable
    """The entries it lists, or the error that names the bodies missing here."""
    case: Case | None


@dataclass(frozen=True, slots=True)
class Collected:
    """A conversation at one moment, as far as a replay needs it."""

    conversation: ConversationId
    log_digest: Digest
    entries: int
    seals: tuple[SealedContext, ...]
    """Parents before children."""
    order: tuple[EntryId, ...]
    """The answers to check, in (lamport, id) order."""
    refused: int
    open: int
    """Sealed requests without an answer."""

    def part(self, is_judged: Callable[[Case], bool]) -> "Collected":
        """Return what checking some of the answers needs."""
        needed: set[EntryId | None] = set()
        seals: list[SealedContext] = []
        for sealed in reversed(self.seals):
            case = sealed.case if sealed.case is not None and is_judged(sealed.case) else None
            if case is not None or sealed.seal_id in needed:
                seals.append(replace(sealed, case=case))
                needed.add(sealed.parent)
        return replace(self, seals=tuple(reversed(seals)))


def collect(held: Conversation, first: EntryId | None = None) -> Collected:
    """Read the answers of a conversation; with `first`, those whose context has that entry.

    That entry may be the answer itself, or its seal. Raises ArgumentInvalid for an unknown one,
    and for one that leaves no answer; ReplayTooLarge where seals repeat too many entries.
    """
    if first is not None and first not in held.log.entries:
        raise ArgumentInvalid(f"from_entry: {short(first)} is no entry of this conversation")
    nodes = list(held.order.nodes.values())
    chosen = [n for n in nodes if n.generation is not None and _follows(n, first)]
    if first is not None and not chosen:
        raise ArgumentInvalid(
            f"from_entry: no answer has {short(first)} in its context; choose a message, a request,"
            " a seal or an answer"
        )
    needed: set[EntryId] = set()
    for node in chosen:
        each: SealNode | None = node
        while each is not None and each.id not in needed:
            needed.add(each.id)
            each = each.parent
    listed = [node for node in nodes if node.id in needed]
    if sum(len(node.seal.entries) for node in listed) > REPLAY_ENTRIES_MAX:
        raise ReplayTooLarge
    answers = {node.id: _case(held, node) for node in chosen}
    items: dict[tuple[EntryId, bool], ContextItem] = {}
    return Collected(
        held.id,
        held.log.digest,
        len(held.log),
        tuple(_sealed(held, node, answers.get(node.id), items) for node in listed),
        tuple(
            sorted(
                (case.entry for case in answers.values()),
                key=lambda entry: held.log.entries[entry].order_key,
            )
        ),
        len(held.order.refusal_of),
        sum(node.generation is None for node in nodes),
    )


def _follows(node: SealNode, first: EntryId | None) -> bool:
    return first is None or node.covers(first) or first in (node.id, node.generation)


def _case(held: Conversation, node: SealNode) -> Case:
    assert node.generation is not None, "an answer is checked"
    request_id = node.seal.request
    request, recorded = held.order.request(request_id), held.log.body(node.generation)
    assert request is not None, "a seal that counts names a request"
    # Whoever cancelled may have been revoked since: the host obeyed what it saw.
    cancelled = any(
        held.log.entries[child].header.kind == Kind.CANCEL
        for child in held.log.children(request_id)
    )
    answer = recorded if isinstance(recorded, Generation) else None
    return Case(node.generation, node.id, request_id, request, node.seal, answer, cancelled)


def _sealed(
    held: Conversation,
    node: SealNode,
    case: Case | None,
    items: dict[tuple[EntryId, bool], ContextItem],
) -> SealedContext:
    listing: Listing | BodyUnavailable
    try:
        listing = listing_of(held, node.seal.entries, node.seal.membership_heads, items=items)
    except BodyUnavailable as error:
        listing = error
    parent = node.parent.id if node.parent is not None else None
    return SealedContext(node.id, node.seal, parent, listing, case)
