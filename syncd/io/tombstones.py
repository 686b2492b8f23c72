"""The tombstones of deleted conversations in a hub's store, in two tables (spec/04-link §9).

A lost tombstone would let members restore what an owner deleted, and one too many would
erase what was acknowledged. So a tombstone is stored in both copies at once or in none.
"""

import asyncio

import structlog

from replica.ids import ID_BYTES, ConversationId
from replica.io import TOMBSTONES, Store
from replica.refusals import ValueDamaged

log = structlog.get_logger()


class Tombstones:
    """The durable tombstones of a hub."""

    def __init__(self, store: Store) -> None:
        """Use the caller's store."""
        self._store = store
        self._ids: set[ConversationId] = set()
        self._adds = asyncio.Lock()

    async def load(self) -> frozenset[ConversationId]:
        """Return the ids in either copy. Raises ValueDamaged if both are damaged, StoreError."""
        found, damaged = b"", []
        for name in TOMBSTONES:
            try:
                found += await self._store.get_meta(name) or b""
            except ValueDamaged as error:
                log.warning("tombstones damaged", detail=error.detail)
                damaged.append(error)
        if len(damaged) == len(TOMBSTONES):
            raise damaged[0]
        starts = range(0, len(found), ID_BYTES)
        self._ids.update(ConversationId(found[at : at + ID_BYTES]) for at in starts)
        return frozenset(self._ids)

    async def add(self, conversation: ConversationId) -> None:
        """Store a tombstone; return once it is durable. After a StoreError there is none."""
        async with self._adds:  # each writes all, so none may begin before another has ended
            ids = b"".join(sorted({*self._ids, conversation}))
            await self._store.put_meta(TOMBSTONES[0], ids, *TOMBSTONES[1:])
            self._ids.add(conversation)
