"""The hosts that a conversation waits for (spec/04-link §4, LINK-95).

Pure. A hub says so in its list, and a replica that follows listed conversations opens these.
"""

from collections.abc import Set

from replica.conversation.conversation import Conversation
from replica.ids import PublicKey


def hosts_awaited(held: Conversation) -> Set[PublicKey]:
    """Return the hosts that the latest requests without an answer name, as they are at any time."""
    return held.order.unanswered.hosts
