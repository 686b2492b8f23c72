"""Taking streamed output from a peer: whose it may be, and where it belongs (spec/04-link §6).

Pure, and private to exchange.py.
"""

from replica.conversation import Conversation, Draft, DraftStream, verify_draft
from replica.ids import PublicKey
from replica.refusals import NotAllowed


def accept_draft(held: Conversation, draft: Draft, sender: PublicKey | None) -> bool:
    """Check a draft against the sealed request's host and keep it; say if it is news (LINK-17).

    `sender` is the replica it came from, None where a hub passed it on. Raises
    NotAllowed, or the EntryRefused of what is wrong with it.
    """
    seal_id = held.order.seal_of.get(draft.request)
    node = held.order.nodes.get(seal_id) if seal_id is not None else None
    if node is None or node.generation is not None:
        return False  # not sealed here yet, or over: the log has or will have the rest
    if sender is not None and sender != node.author:
        raise NotAllowed("only the request's host streams its answer")
    verify_draft(draft, PublicKey(node.author))
    stream = held.drafts.get(draft.request)
    if stream is None or stream.run != draft.run:
        stream = DraftStream(held.id, draft.request, draft.run)
    # Only a run's first frame replaces another run: a late frame must not erase what is read.
    if not stream.receive(draft):
        return False
    held.drafts[draft.request] = stream
    return True
