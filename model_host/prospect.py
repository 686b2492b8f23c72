"""The context at a place of a conversation, sealed or to come (spec/07-host §6). Pure."""

from model_host.contexts import Contexts
from model_host.plan import Branch, gather_branch
from replica.conversation import Conversation, place_at
from replica.ids import EntryId
from replica.order import coverage
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
    heads = held.log.membership_heads()
    membership = held.log.roster.at(heads)
    entries = coverage(held.log, held.order.nodes, entry_id, parent, None, membership)
    return gather_branch(held, parent, contexts, entries, heads)
