"""The writer of a replica's own entries: one of the processes on a store (DECISIONS D341)."""

import asyncio
import os

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.conversation import (
    CHANCE_BYTES,
    Author,
    Chain,
    Conversation,
    NewEntry,
    Slot,
    StoreEpochs,
    check_calls,
    check_slot,
    find_written,
)
from replica.ids import ConversationId, EntryId
from replica.io.driver.driver import ReplicaDriver
from replica.io.serving import rpc
from replica.log import Conflict, Entry, Request


class Writer:
    """Writes the entries of one key, each in the epoch that the core allows (02-entry §7)."""

    def __init__(self, driver: ReplicaDriver, key: Ed25519PrivateKey, epochs: StoreEpochs) -> None:
        """Write through `driver`, in `epochs` of its store, and sign with `key`."""
        self._driver = driver
        self._key = key
        self._epochs = epochs

    def new_epoch(self) -> int:
        """Return a fresh epoch."""
        return self._epochs.new(os.urandom(CHANCE_BYTES))

    def author(self, held: Conversation) -> Author:
        """Return the author of the next entry of a conversation."""
        return Author(self._key, self._driver.core.epochs.epoch(held, self.new_epoch()))

    async def slot(self, conversation: ConversationId, track: int) -> Slot:
        """Return the slot of the next entry on a track."""
        held = await self._driver.load(conversation)
        lane = self.author(held).lane(track)
        return Slot(lane, held.next_position(lane)[0])

    async def write(
        self, conversation: ConversationId, chain: Chain, *, send: bool = True, again: bool = False
    ) -> tuple[Entry, ...]:
        """Write a whole chain with one fsync; return its entries once they are durable.

        Without `send` the process that asked sends them to the hub. `again` says that the
        chain may be in the log already; it is not written twice then. Raises StoreFull,
        LaneMoved, CallStarted, and the errors of Author.write; nothing is written then.
        """
        held = await self._driver.load(conversation)
        public = Author(self._key, 0).public
        known = [find_written(held, public, new) if again else None for new in chain.entries]
        author = self.author(held)
        core = self._driver.core
        refused = core.holdings.refused(conversation)
        if any(
            author.needs_new_epoch(held, new.body, chain.parents, refused) for new in chain.entries
        ):
            core.epochs.begin(held.id, self.new_epoch())
            author = self.author(held)
        if not any(known):
            check_slot(held, chain, author.epoch)
            check_calls(held, chain)
        if len(chain.entries) > 1:  # all of them are written, or none
            for new, found in zip(chain.entries, known, strict=True):
                if found is None:
                    author.content(held, new.body, new.salt)
        written, durable, parents = list[Entry](), [], chain.parents
        for number, (new, found) in enumerate(zip(chain.entries, known, strict=True)):
            entry = found or self._entry(held, new, chain, parents)
            if found is None:
                more_follow = number + 1 < len(chain.entries)
                durable.append(self._driver.append(entry, more_follow=more_follow, send=send))
            written.append(entry)
            parents = (entry.id,)
        await asyncio.gather(*durable)
        if not durable:
            await self._driver.flush()  # they may be in memory alone
        return tuple(written)

    def _entry(
        self, held: Conversation, new: NewEntry, chain: Chain, parents: tuple[EntryId, ...]
    ) -> Entry:
        return self.author(held).write(
            held,
            new.body,
            parents=parents,
            basis=chain.basis,
            conflict=chain.conflict if isinstance(new.body, Request) else Conflict.QUEUE,
            salt=new.salt,
            time_ms=rpc.now_ms(),
        )
