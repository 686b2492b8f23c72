"""Membership at the moment of a delivery (LINK-16).

Pure. A frame may wait in a stream's queue while its reader is revoked, so the
queue's writer asks once more, before each frame.
"""

from replica.ids import ConversationId, PublicKey
from replica.link import Close, Fault, Message, conversation_of
from replica.refusals import ConversationUnknown
from syncd.hint import Answered, Hint
from syncd.shelf import HubShelf


def withheld(shelf: HubShelf, peer: PublicKey, message: Message | Hint | Answered) -> Close | None:
    """Return the Close to send in place of a message, None if `peer` may have the message.

    A fault or a Close ends something and reveals nothing, so both pass.
    """
    if isinstance(message, Close | Fault):
        return None
    if isinstance(message, Hint | Answered):
        conversation: ConversationId | None = message.conversation
    else:
        conversation = conversation_of(message)
    if conversation is None or not shelf.is_stranger(conversation, peer):
        return None
    return Close(conversation, Fault.of(ConversationUnknown(), conversation))
