"""Ids in requests, with their width checked."""

from replica.ids import ID_BYTES, ConversationId
from replica.refusals import ArgumentInvalid


def conversation_id(value: bytes) -> ConversationId:
    """Return a conversation's id from its bytes. Raises ArgumentInvalid."""
    if len(value) != ID_BYTES:
        raise ArgumentInvalid("conversation: 32 bytes")
    return ConversationId(value)
