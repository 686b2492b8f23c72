"""The acks of a hub in the store, for the pure core's replica/link/acks.py (spec/04-link §5)."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Self

from replica.conversation import Conversation, EntryStore
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.io.calls import pinned_key
from replica.io.serving import rpc
from replica.link import Acks
from replica.refusals import PinDamaged

_NOBODY = PublicKey(b"")
"""The key of a hub that was never connected, which has no acks."""


class SavedAcks:
    """The acks of one hub, or of all hubs this replica was ever linked to."""

    def __init__(self, store: EntryStore, hub: PublicKey | None) -> None:
        """Use the acks of `hub`; None uses those of all hubs."""
        self.hub = hub
        """The hub whose acks these are; changes when another hub proves its key."""
        self._store = store
        self._acked_ms: dict[ConversationId, int | None] = {}

    @classmethod
    async def of_hub(cls, store: EntryStore, address: str | None) -> Self:
        """Return the acks of the hub pinned at `address`; without an address, of all hubs."""
        if address is None:
            return cls(store, None)
        hub = None
        with suppress(PinDamaged):  # the link raises it
            hub = await pinned_key(store, address)
        return cls(store, hub or _NOBODY)

    async def load(self, conversation: ConversationId) -> tuple[Position, ...]:
        """Return the newest acknowledged position of each lane."""
        while True:
            hub = self.hub
            positions, acked_ms = await self._store.load_acks(conversation, hub)
            if hub == self.hub:  # else another hub was connected meanwhile
                self._acked_ms[conversation] = acked_ms
                return positions

    def save(self, conversation: ConversationId, positions: Iterable[Position]) -> None:
        """Save positions the hub holds durably; the next link repeats acks that were not saved."""
        assert self.hub is not None, "who acknowledges was met before"
        newest = {p.lane: p for p in sorted(positions)}
        now_ms = rpc.now_ms()
        self._acked_ms[conversation] = now_ms
        self._store.save_acks(conversation, self.hub, newest.values(), now_ms)

    def acked_ms(self, conversation: ConversationId) -> int | None:
        """Return the time of the hub's last ack in Unix milliseconds; call load() first."""
        return self._acked_ms.get(conversation)

    def forget(self, conversation: ConversationId) -> None:
        """Forget the time of an ack; it stays in the store."""
        self._acked_ms.pop(conversation, None)

    async def unacked(self, held: Conversation) -> set[EntryId]:
        """Return the ids the hub is not known to hold; the next link begins with them."""
        acks = Acks()
        acks.load(held.id, await self.load(held.id))
        return acks.unacked(held)
