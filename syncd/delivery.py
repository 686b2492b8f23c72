"""Membership at the moment of a delivery (LINK-16).

Pure. A frame may wait in a stream's queue while its reader is revoked, so the
queue's writer asks once more, before each frame.
"""

from collections.abc import Container

from replica.ids import ConversationId, PublicKey
from replica.link import Close, Fault, Message, conversation_of
from replica.refusals import ConversationUnknown
from syncd.hint import Answered, Hint
from syncd.shelf import HubShelf

Outgoing = Message | Hint | Answered


def delivered(
    shelf: HubShelf, deleted: Container[ConversationId], peer: PublicKey, message: Outgoing
) -> Outgoing | None:
    """Return what a peer gets for a queued message: itself, a Close in its place, or nothing.

    A fault or a Close ends something and reveals nothing, so both pass. Where the members are
    unknown, after a refused commit or a deletion, nobody gets what was queued: the Close with
    the reason is behind it.
    """
    if isinstance(message, Close | Fault):
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
