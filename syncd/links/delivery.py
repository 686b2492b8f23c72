"""Membership at the moment of a delivery (LINK-16).

Pure. A frame may wait in a stream's queue while its reader is revoked, so the
queue's writer asks once more, before each frame.
"""

from collections.abc import Container
from dataclasses import replace

from replica.ids import ConversationId, PublicKey
from replica.link import Close, Fault, Listing, Message, conversation_of
from replica.refusals import ConversationUnknown, EntriesMissing, LanesDiverged
from syncd.links.hint import Answered, Hint
from syncd.shelves import HubShelf

Outgoing = Message | Hint | Answered

_OF_ENTRIES = (EntriesMissing.reason, LanesDiverged.reason)
"""Reasons of faults that tell which entries the hub holds."""


def delivered(
    shelf: HubShelf, deleted: Container[ConversationId], peer: PublicKey, message: Outgoing
) -> Outgoing | None:
    """Return what a peer gets for a queued message: itself, a Close in its place, or nothing.

    A Close ends something and reveals nothing, so it passes, and so do faults but those about
    the hub's entries. Of a list the items pass that are the peer's still. Where the members are
    unknown, after a refused commit or a deletion, nobody gets what was queued: the Close with
    the reason is behind it.
    """
    if isinstance(message, Listing):
        return _listed(shelf, peer, message)
    if isinstance(message, Close) or (
        isinstance(message, Fault) and message.reason not in _OF_ENTRIES
    ):
        return message
    if isinstance(message, Hint | Answered):
        conversation: ConversationId | None = message.conversation
    else:
        conversation = conversation_of(message)
    if conversation is None:
        return message
    if conversation in deleted or shelf.apart.is_unread(conversation):
        return None
    if shelf.is_stranger(conversation, peer):
        return Close(conversation, Fault.of(ConversationUnknown(), conversation))
    return message


def _listed(shelf: HubShelf, peer: PublicKey, message: Listing) -> Listing | None:
    items = tuple(i for i in message.items if _is_member(shelf, i.conversation, peer))
    if len(items) == len(message.items):
        return message
    return replace(message, items=items) if items else None


def _is_member(shelf: HubShelf, conversation: ConversationId, peer: PublicKey) -> bool:
    if not shelf.is_known(conversation) or shelf.apart.is_unread(conversation):
        return False
    return not shelf.is_stranger(conversation, peer)
