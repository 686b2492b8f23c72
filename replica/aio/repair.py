"""Fetch what this replica should hold and doesn't: bodies set aside, or never sent.

Lane heads don't show a missing body, since a digest covers headers; so they
are asked for by id. A missing entry, on the other hand, comes by itself: its
lane ends before it, and the hub sends the rest.
"""

from replica.aio.client import Client
from replica.ids import ConversationId


async def fetch_missing(client: Client, conversation: ConversationId) -> int:
    """Fetch missing bodies from the hub and store them; return how many came.

    Raises HubUnreachable, what the hub refuses with, or BodyDigestMismatch.
    """
    held = await client.load(conversation)
    wanted = [entry.id for entry in held.log.entries.values() if entry.body is None]
    if not wanted:
        return 0
    return await client.take_bodies(conversation, await client.calls().fetch(conversation, wanted))
