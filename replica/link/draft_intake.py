"""Admission of drafts from a peer: their host, seal and run (spec/04-link §6).

Pure, and private to exchange.py.
"""

from replica import limits
from replica.conversation import Conversation, Draft, DraftStream, verify_draft
from replica.ids import PublicKey
from replica.refusals import NotAllowed

_COUNTED_BYTES_MIN = 64 * 1024
"""What a draft counts as in its conversation, at least, so that there are few: whatever is said
about the conversation, and each of its readers, passes over all of them (DECISIONS D686)."""


def accept_draft(held: Conversation, draft: Draft, sender: PublicKey | None) -> bool:
    """Check a draft against the sealed request's host and keep it; return whether it is new.

    `sender` is the replica it came from, None if a hub passed it on (LINK-17).
    Raises NotAllowed or EntryRefused.
    """
    seal_id = held.order.seal_of.get(draft.request)
    node = held.order.nodes.get(seal_id) if seal_id is not None else None
    if node is None or node.generation is not None:
        return False  # not sealed here yet, or ended: the log has or will have the answer
    if sender is not None and sender != node.author:
        raise NotAllowed("only the request's host streams its answer")
    verify_draft(draft, PublicKey(node.author))
    stream = held.drafts.get(draft.request)
    if stream is None or stream.run != draft.run:
        stream = DraftStream(held.id, draft.request, draft.run)
    others = (_counted(one) for i, one in held.drafts.items() if i != draft.request)
    if sum(others) + _counted(stream) > limits.RUNNING_DRAFTS_BYTES_MAX:
        return False
    # Only the first frame of a run replaces another run. A late frame of an older run must
    # not discard the frames of the newer one.
    if not stream.receive(draft):
        return False
    held.drafts[draft.request] = stream
    return True


def _counted(stream: DraftStream) -> int:
    return max(_COUNTED_BYTES_MIN, stream.memory_bytes)
