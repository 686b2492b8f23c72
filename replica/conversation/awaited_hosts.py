"""The hosts that a conversation waits for (spec/04-link §4, LINK-95).

Pure. A hub says so in its list, and a replica that follows listed conversations opens these.
"""

from collections.abc import Iterator
from itertools import islice

from replica.conversation.conversation import Conversation
from replica.ids import PublicKey

REQUESTS_LOOKED_AT = 256
"""Requests without an answer that are looked at, the latest ones: it bounds the cost."""


def hosts_awaited(held: Conversation) -> Iterator[PublicKey]:
    """Yield the hosts that the latest requests without an answer name, the last in order(x) first.

    A host may come several times.
    """
    for request_id in islice(held.order.unanswered.latest(), REQUESTS_LOOKED_AT):
        request = held.order.request(request_id)
        if request is not None:
            yield request.host
