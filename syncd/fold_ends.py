"""The end of a fold that paused: its conversation is here for everybody again (LINK-92). Pure."""

from replica.conversation import Conversation
from replica.ids import ConversationId
from syncd.connected import LinkId
from syncd.fan_out import FanOut, HubEffects
from syncd.hub import Hub


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
        if held.id in link.exchange.passed_over:  # it had credit while the fold paused
            hub.connected.postponed.add(held.id, link_id)
    return out.build()


def resume(hub: Hub, link_id: LinkId, conversation: ConversationId) -> HubEffects:
    """Send a link some of what waits for it: a fold paused, or too much was to be sent."""
    out, link = FanOut(hub.connected, hub.shelf, 0.0), hub.links.get(link_id)
    if link is not None:
        out.add(link_id, link.resume(conversation))
    return out.build()
