"""A store that several processes of one user share (DECISIONS D340).

Every process reads the file itself. The writing is done by the process that holds the lock;
see holding.py.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from replica.conversation import Loaded, Quarantined, Stored
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.io.driver.holding import Holding
from replica.io.files import Claims
from replica.io.local import Identity, LocalFrame
from replica.io.local import local_frames as frames
from replica.io.process import Closing
from replica.io.store import Store
from replica.log import Entry


class SharedStore(Closing):
    """The store of a replica, which other processes may hold; see EntryStore."""

    def __init__(self, holding: Holding, claims: Claims) -> None:
        """Use `open`."""
        self.holding = holding
        self.claims = claims

    @classmethod
    async def open(cls, path: Path, key: PublicKey, label: str | None) -> Self:
        """Open the store, or join the process that holds it; see Holding.open."""
        claims = Claims(path)
        try:
            return cls(await Holding.open(path, Identity.of(key, label), claims), claims)
        except BaseException:
            claims.close()
            raise

    async def close(self) -> None:
        """Leave the store, and close it if this process holds it."""
        await self.holding.close()
        self.claims.close()

    async def append(self, entries: Sequence[Entry], *, at_once: bool = False) -> None:
        """Store admitted entries; return once they are durable. On an error, store none.

        Concurrent callers share one sync, unless it is to begin `at_once`.
        """
        if (own := self.holding.own) is not None:
            await own.append(entries, may_repeat=True, at_once=at_once)
            return
        for group in frames.grouped(entries):
            head = {"op": "append", "conversation": group[0].conversation.hex()}
            request = LocalFrame(head, frames.entry_blobs(group))
            await self.holding.call(partial(_append, group), request)

    async def delete(self, conversation: ConversationId) -> None:
        """Erase a conversation durably, from the memory of the other processes as well."""
        head = {"op": "delete", "conversation": conversation.hex()}
        await self.holding.call(lambda store, _again: store.delete(conversation), LocalFrame(head))
        if (server := self.holding.server) is not None:
            server.announce(LocalFrame(head | {"op": "deleted"}))

    async def put_meta(self, key: str, value: bytes) -> None:
        """Store a small value under `key`; return once it is durable."""
        request = LocalFrame({"op": "put", "key": key}, (value,))
        await self.holding.call(lambda store, _again: store.put_meta(key, value), request)

    def save_acks(
        self,
        conversation: ConversationId,
        peer: PublicKey,
        positions: Iterable[Position],
        now_ms: int,
    ) -> None:
        """Save the newest positions that `peer` acknowledged; a crash may lose it."""
        if (own := self.holding.own) is not None:
            own.save_acks(conversation, peer, positions, now_ms)
            return
        fields = [frames.position_fields(position) for position in positions]
        head = {"op": "acks", "conversation": conversation.hex(), "peer": peer.hex()}
        # Lost while the store changes hands: the peer acks again.
        if (client := self.holding.client) is not None:
            client.send(LocalFrame(head | {"positions": fields, "now_ms": now_ms}))

    async def load(self, conversation: ConversationId, *, bodies: bool = True) -> Loaded:
        """Return the sound entries of a conversation and the ids of the lost ones."""
        return await self.holding.read(lambda store: store.load(conversation, bodies=bodies))

    async def load_bodies(
        self, conversation: ConversationId, ids: Iterable[EntryId]
    ) -> dict[EntryId, bytes]:
        """Return bodies by entry id; missing ones are left out."""
        return await self.holding.read(lambda store: store.load_bodies(conversation, ids))

    async def has(self, conversation: ConversationId) -> bool:
        """Say whether anything of the conversation is stored, including damaged rows."""
        return await self.holding.read(lambda store: store.has(conversation))

    async def conversations(self) -> list[Stored]:
        """List the stored conversations by id."""
        return await self.holding.read(lambda store: store.conversations())

    @property
    def lost_count(self) -> int:
        """Number of entries at the end of the store that are gone since the last repair."""
        current = self.holding.current
        return current.lost_count if current is not None else 0

    async def quarantined(self) -> list[Quarantined]:
        """List the rows that failed their digests and were not deleted since."""
        return await self.holding.read(lambda store: store.quarantined())

    async def load_acks(
        self, conversation: ConversationId, peer: PublicKey | None
    ) -> tuple[tuple[Position, ...], int | None]:
        """Return the positions `peer` acknowledged, and the Unix time of the last ack in ms."""
        return await self.holding.read(lambda store: store.load_acks(conversation, peer))

    async def get_meta(self, key: str, *, is_derived: bool = False) -> bytes | None:
        """Return the small value stored under `key`; None if there is none."""
        return await self.holding.read(lambda store: store.get_meta(key, is_derived=is_derived))


async def _append(entries: Sequence[Entry], store: Store, _again: bool) -> None:
    await store.append(entries, may_repeat=True)
