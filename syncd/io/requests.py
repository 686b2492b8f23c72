"""Reading what callers name; every width is checked here."""

from replica.ids import ID_BYTES, ConversationId
from replica.refusals import ArgumentInvalid


def conversation_id(value: bytes) -> ConversationId:
    """Read the id of a conversation. Raises ArgumentInvalid."""
    if len(value) != ID_BYTES:
        raise ArgumentInvalid("conversation: 32 bytes")
    return ConversationId(value)
