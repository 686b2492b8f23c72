"""Conversations restored from their stored entries: long ones in a thread (DECISIONS D322).

Used by a replica and by a hub.
"""

import asyncio

from replica.conversation import Conversation, Loaded
from replica.ids import ConversationId

LONG_ENTRIES = 500
"""Entries from which on a conversation is restored in a thread."""


async def restored(conversation: ConversationId, loaded: Loaded) -> Conversation:
    """Restore a conversation, with its digest and the parents of the next entry.

    A long log takes seconds, in which the event loop serves others. The caller keeps entries
    of this conversation back until it has put the result in memory.
    """
    if len(loaded.entries) > LONG_ENTRIES:
        return await asyncio.to_thread(_restored, conversation, loaded)
    return _restored(conversation, loaded)


def _restored(conversation: ConversationId, loaded: Loaded) -> Conversation:
    held = Conversation.restore(conversation, loaded.entries, loaded.lost)
    held.prepare()
    return held
