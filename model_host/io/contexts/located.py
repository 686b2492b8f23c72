"""Where the tokens of a context are kept: in memory, in a checkpoint (spec/07-host §6)."""

import asyncio
from collections.abc import Sequence
from functools import partial

from model_host.batching import Batcher
from model_host.errors import CheckpointError
from model_host.io.profiles import Offer, Profiles
from model_host.kv import Located, PagePool, PageStore
from replica.conversation import Conversation
from replica.ids import ConversationId


async def locate(
    profiles: Profiles, held: Conversation, offer: Offer, ids: Sequence[int]
) -> Located:
    """Return the parts of a context that are kept, without a use of any of them.

    A profile that is not loaded has none in memory. Whether a checkpoint can be used is
    known once its profile has been loaded.
    """
    stored = await stored_tokens(profiles, held, offer, ids)
    own, memory = await memory_tokens(profiles, held, offer, ids)
    return Located(own, memory, stored)


async def stored_tokens(
    profiles: Profiles, held: Conversation, offer: Offer, ids: Sequence[int]
) -> int:
    """Return the first tokens of a context that lie in a checkpoint on disk."""
    spaces = profiles.namespaces(offer)
    if spaces is None:
        return 0
    find = partial(_stored, profiles.pages, held.id, spaces.stored(held), ids)
    return await asyncio.to_thread(find)


async def memory_tokens(
    profiles: Profiles, held: Conversation, offer: Offer, ids: Sequence[int]
) -> tuple[int, int]:
    """Return the first tokens that lie in own pages, and in any; it waits for a running step."""
    spaces = profiles.namespaces(offer)
    if spaces is None:
        return 0, 0
    peek = partial(_peek, held.id, spaces.pages(held), ids)
    return await profiles.look(offer, peek) or (0, 0)


def _peek(
    conversation: ConversationId,
    domain: bytes,
    ids: Sequence[int],
    _batcher: Batcher,
    pool: PagePool,
    _pages: PageStore,
) -> tuple[int, int]:
    """Return the first tokens that lie in own pages, and in any pages, of a profile's memory."""
    return pool.cached.peek(ids, conversation, domain)


def _stored(
    pages: PageStore, conversation: ConversationId, namespace: bytes, ids: Sequence[int]
) -> int:
    """Return the first tokens that lie in a checkpoint."""
    try:
        # A request adds at least one token, which is the one that is always computed.
        return pages.find(conversation, namespace, (*ids, 0)).tokens
    except CheckpointError:  # none, or only broken ones, which a restore would not use
        return 0
