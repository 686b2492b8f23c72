"""What keeps a model host from a conversation, as the host says itself (spec/07-host §6)."""

from replica.conversation import is_loopback
from replica.errors import AntiphonError, StoreError
from replica.ids import ConversationId, PublicKey
from replica.io.calls import HostCalls
from replica.io.driver import Replica

OWNER_NOT_SERVED = "OWNER_NOT_SERVED"
"""The reason of a host that leaves a conversation out by its settings."""


async def hindrance(
    replica: Replica, conversation: ConversationId, host: PublicKey, address: str
) -> str:
    """Return the reason of the error that keeps a host from a conversation.

    Empty where it knows of none, and of a host on another machine, which takes no calls from
    here. A request that is being tried again just now has none. Raises HostUnreachable, and the
    refusal of a host that does not know the conversation yet.
    """
    if not is_loopback(address):
        return ""
    async with HostCalls(address, replica.key, host) as calls:
        try:
            await calls.list_checkpoints(conversation)
        except AntiphonError as error:
            if isinstance(error, StoreError) or error.reason == OWNER_NOT_SERVED:
                return error.reason
            raise
        requests = (await calls.stats()).requests
    own = (one.failure for one in requests if one.conversation == conversation)
    return next(filter(None, own), "")
