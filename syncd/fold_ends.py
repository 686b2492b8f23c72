"""The end of a fold that paused: its conversation is here for everybody again (LINK-92). Pure."""

from replica.conversation import Conversation
from syncd.hub import Hub
from syncd.links import FanOut, HubEffects


def end_fold(hub: Hub, held: Conversation) -> HubEffects:
    """End a fold that paused; list its conversation to those who asked meanwhile.

    It leaves memory if the disk refused entries of it in a pause, as others did before.
    """
    out = FanOut(hub.connected, hub.shelf, 0.0)
    if hub.shelf.folding.end(held):
        hub.shelf.invalidate(held.id)
    elif held.id in hub.shelf:
        out.list_one(held.id)
    for link_id, link in hub.connected.readers(held.id):
        if link.peer is not None and held.id in link.exchange.passed_over:
            # It had credit while the fold paused.
            hub.connected.postponed.add((held.id, link.peer), link_id)
    return out.build()
