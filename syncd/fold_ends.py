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
    return out.build()


def passed_over(hub: Hub, conversation: ConversationId) -> list[LinkId]:
    """Return the links that had credit for a conversation while its fold paused."""
    readers = hub.connected.readers(conversation)
    return [i for i, link in readers if conversation in link.exchange.passed_over]


def resume(hub: Hub, link_id: LinkId, conversation: ConversationId) -> HubEffects:
    """Send a link some of what it was not sent while a fold paused."""
    out, link = FanOut(hub.connected, hub.shelf, 0.0), hub.links.get(link_id)
    if link is not None:
        out.add(link_id, link.resume(conversation))
    return out.build()
