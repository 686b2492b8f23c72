"""Write CANCELs: of requests, and of messages, which they withdraw (spec/03-order §3)."""

from replica.conversation import requests_to_cancel
from replica.ids import ConversationId, EntryId
from replica.io.driver import Replica
from replica.log import Cancel, Entry


async def cancel(replica: Replica, conversation: ConversationId, request: EntryId) -> Entry:
    """Append a CANCEL of a request."""
    return await replica.append(conversation, Cancel(), parents=(request,))


async def withdraw(replica: Replica, conversation: ConversationId, message: EntryId) -> Entry:
    """Cancel one's open requests about a message, then append a CANCEL of the message.

    Requests that follow that are answered without it. Raises the errors of `requests_to_cancel`.
    """
    held = await replica.load(conversation)
    for request in requests_to_cancel(held, message, replica.public):
        await cancel(replica, conversation, request)
    return await replica.append(conversation, Cancel(), parents=(message,))
