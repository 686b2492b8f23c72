"""What a hub is known to hold durably: its acks, in memory and in the store (spec/04-link §4).

Read once per conversation, so that the answer is there without waiting, with
a link or without one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from replica.conversation import Conversation
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.io import rpc
from replica.io.hub_calls import pinned_key
from replica.io.store import Store
from replica.link import compare_heads

_NOBODY = PublicKey(b"")
"""A hub never met: it has acknowledged nothing."""


@dataclass(frozen=True, slots=True)
class _Known:
    positions: tuple[Position, ...] = ()
    acked_ms: int | None = None


class Acks:
    """The acks of one hub, or of all hubs this replica ever met."""

    def __init__(self, store: Store, hub: PublicKey | None) -> None:
        """Go by what `hub` acknowledged; None counts what any hub did."""
        self._store = store
        self._hub = hub
        self._known: dict[ConversationId, _Known] = {}

    @classmethod
    async def of_hub(cls, store: Store, address: str | None) -> "Acks":
        """Return the acks of the hub pinned at `address`; without an address, of all hubs."""
        if address is None:
            return cls(store, None)
        return cls(store, await pinned_key(store, address) or _NOBODY)

    async def meet(self, hub: PublicKey) -> None:
        """Go by the acks of `hub` from now on: it has proved its key."""
        if hub == self._hub:
            return
        self._hub = hub
        loaded = tuple(self._known)
        self._known.clear()
        for conversation in loaded:
            await self.load(conversation)

    async def load(self, conversation: ConversationId) -> None:
        """Read what is saved of a conversation, unless that was done before."""
        while conversation not in self._known:
            hub = self._hub
            known = _Known(*await self._store.load_acks(conversation, hub))
            if hub == self._hub:  # else another hub was met meanwhile
                self._known.setdefault(conversation, known)

    async def note(self, conversation: ConversationId, positions: Iterable[Position]) -> None:
        """Take entries as durable at the hub, with their lane ancestors, and save that.

        They replace what was known of their lanes, because a hub that lost a
        conversation acknowledges it again from the genesis.
        """
        assert self._hub is not None, "who acknowledges was met before"
        newest = {p.lane: p for p in sorted(positions)}
        before = self._known.get(conversation, _Known()).positions
        kept = (p for p in before if p.lane not in newest)
        now_ms = rpc.now_ms()
        self._known[conversation] = _Known((*kept, *newest.values()), now_ms)
        await self._store.save_acks(conversation, self._hub, newest.values(), now_ms)

    def forget(self, conversation: ConversationId) -> None:
        """Forget a conversation; deleting it deletes what is saved."""
        self._known.pop(conversation, None)

    def positions(self, conversation: ConversationId) -> tuple[Position, ...]:
        """Return the newest acknowledged position of each lane; load() comes first."""
        return self._known.get(conversation, _Known()).positions

    def acked_ms(self, conversation: ConversationId) -> int | None:
        """Return when the hub last acknowledged anything, Unix milliseconds."""
        return self._known.get(conversation, _Known()).acked_ms

    def unacked(self, held: Conversation) -> set[EntryId]:
        """Return what the hub is not known to hold, as the next link to it will begin with."""
        acked = compare_heads(held.log, self.positions(held.id))
        return set(held.log.covered()) - acked.held
