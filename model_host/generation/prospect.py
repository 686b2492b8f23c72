"""The context at a place of a conversation, sealed or to come (spec/07-host §6). Pure.

What is not sealed yet is what a seal would list, by the rule of seals (`coverage_before`): a
refusal, a void entry and an entry of any other kind is behind a place, and in no context.
"""

from collections.abc import Iterable

from model_host.generation.planning import Branch, gather_branch
from model_host.rendering import Contexts
from replica.conversation import Conversation, place_at
from replica.ids import EntryId
from replica.order import SealNode, coverage_before, frontier, is_open
from replica.refusals import ArgumentInvalid


def gather_at(held: Conversation, entry_id: EntryId, contexts: Contexts) -> Branch:
    """Collect the context of a seal, or the one that a request right behind an entry would have.

    The request itself is left out, and with it the header of its answer, so the tokens are a
    prefix of those to come. Raises ArgumentInvalid for an entry that none can follow, and
    BodyUnavailable.
    """
    if entry_id not in held.log.entries:
        raise ArgumentInvalid("at: the conversation has no such entry")
    node = held.order.nodes.get(entry_id)
    if node is not None:
        return gather_branch(held, node, contexts)
    place = place_at(held, entry_id)
    parent = held.order.nodes[place.basis] if place.basis is not None else None
    entries, heads = _listed_behind(held, place.parents, parent)
    return gather_branch(held, parent, contexts, entries, heads, asks=False)


def gather_current(held: Conversation, node: SealNode | None) -> Branch:
    """Collect the current context of the branch that ends with a seal.

    It goes up to the seal, with the answer to it and the entries that follow, if there is
    one. A request at the end that waits for its seal has the header of its answer. Raises
    BodyUnavailable.
    """
    if node is not None and node.generation is None:
        return gather_branch(held, node, Contexts(0))
    entries, heads = _listed_behind(held, frontier(held.order, node), node)
    asks = bool(entries) and is_open(held.order, held.log.entries[entries[-1]])
    return gather_branch(held, node, Contexts(0), entries, heads, asks=asks)


def _listed_behind(
    held: Conversation, parents: Iterable[EntryId], parent: SealNode | None
) -> tuple[tuple[EntryId, ...], tuple[EntryId, ...]]:
    """Return what a seal of a request with these parents would list before it, and its heads."""
    heads = held.log.membership_heads()
    membership = held.log.roster.at(heads)
    entries = coverage_before(held.log, held.order.nodes, parents, parent, membership)
    return entries, heads
