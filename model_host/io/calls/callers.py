"""Who calls HostService, and which conversation it may ask about (spec/07-host §6, HOST-22)."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from model_host.errors import OwnerNotServed
from model_host.io.profiles import Offer, Offers
from replica.conversation import Conversation
from replica.errors import StoreError, Unavailable
from replica.ids import ID_BYTES, ConversationId, Digest, EntryId, PublicKey
from replica.io import Replica, restored, rpc
from replica.link import Authenticator
from replica.log import Kind
from replica.refusals import (
    ArgumentInvalid,
    ConversationUnknown,
    NotAllowed,
    RateLimited,
    StoreFull,
)

RETRY_AFTER_S = 1.0


class HostStoreFull(StoreFull):
    """The disk of the host is full, and it can't go on with this conversation."""


@dataclass(frozen=True, slots=True)
class Callers:
    """Checks callers of a host against its own log."""

    replica: Replica
    authenticator: Authenticator
    unstored: Callable[[ConversationId], str | None] = lambda _conversation: None
    """Tells the reason of a conversation that the store can't read or write now."""

    @property
    def admit(self) -> rpc.Admit:
        """Admits calls of keys with a ticket, before any byte of their request is read."""
        return rpc.ticket_holders(self.authenticator)

    async def member(
        self, conversation: bytes, context: rpc.Context
    ) -> tuple[Conversation, PublicKey]:
        """Return a conversation and the caller, who is a member; it stays open for the call.

        Raises ConversationUnknown, OwnerNotServed for the creator of one that the host's
        policy leaves out, and StoreError for one that the store can't read or write now.
        """
        peer = rpc.caller(self.authenticator, context)
        if len(conversation) != ID_BYTES:
            raise ArgumentInvalid("conversation: 32 bytes")
        asked = ConversationId(conversation)
        held = self.replica.shelf.get(asked)
        if self._may_come(asked, held, peer):
            await self.replica.on_demand.ask(asked)
            held = self.replica.shelf.get(asked)
        if held is None or not held.is_member(peer):
            selection = self.replica.on_demand.selection
            if selection.creator(asked) == peer and not selection.may_open(asked):
                raise OwnerNotServed
            reason = self.unstored(asked) if held is None else None
            if reason is not None and await self._was_member(asked, peer):
                raise HostStoreFull if reason == StoreFull.reason else StoreError
            raise ConversationUnknown
        using = ExitStack()
        using.enter_context(self.replica.on_demand.using(asked))
        _at_end(context, using)
        return held, peer

    def _may_come(self, asked: ConversationId, held: Conversation | None, peer: PublicKey) -> bool:
        """Say whether a member may be found where the hub is waited for."""
        if held is None:
            return self.unstored(asked) is None  # else it is known that it can't be stored
        return not held.is_member(peer)  # of the store, a role may be missing yet

    async def _was_member(self, conversation: ConversationId, peer: PublicKey) -> bool:
        """Say whether a key created a conversation, or is a member by what is stored of it."""
        if self.replica.on_demand.selection.creator(conversation) == peer:
            return True
        try:
            loaded = await self.replica.store.load(conversation, bodies=False)
        except StoreError:
            return False
        held = await restored(conversation, loaded) if loaded else None
        return held is not None and held.is_member(peer)


def check_member(held: Conversation, peer: PublicKey) -> None:
    """Raise ConversationUnknown unless a key is a member now."""
    if not held.is_member(peer):
        raise ConversationUnknown


def check_asker(held: Conversation, peer: PublicKey) -> None:
    """Raise ConversationUnknown or NotAllowed unless a key may write requests now."""
    check_member(held, peer)
    if not held.log.membership.may_write(peer, Kind.REQUEST):
        raise NotAllowed("readers cause no computation")


def offer_of(offers: Offers, profile: bytes) -> Offer:
    """Return the offer that a call names, or the default.

    Raises ArgumentInvalid or ProfileUnknown.
    """
    if len(profile) not in (0, ID_BYTES):
        raise ArgumentInvalid("profile: 32 bytes, or none")
    return offers.choose(Digest(profile) if profile else None)


def entry_of(at: bytes) -> EntryId:
    """Return an entry's id. Raises ArgumentInvalid."""
    if len(at) != ID_BYTES:
        raise ArgumentInvalid("at: 32 bytes")
    return EntryId(at)


class Places:
    """A bound on calls of one kind that run at once; a key has one of them."""

    def __init__(self, count: int) -> None:
        """Let `count` calls run."""
        self._count = count
        self._taken: set[PublicKey] = set()

    @contextmanager
    def one(self, key: PublicKey) -> Iterator[None]:
        """Hold a key's place for the block.

        Raises RateLimited if the key has one already, and Unavailable if none is free.
        """
        if key in self._taken:
            raise RateLimited("such a call of this key runs now", retry_after_s=RETRY_AFTER_S)
        if len(self._taken) >= self._count:
            raise Unavailable("too many such calls run now", retry_after_s=RETRY_AFTER_S)
        self._taken.add(key)
        try:
            yield
        finally:
            self._taken.remove(key)

    def of_call(self, key: PublicKey, context: rpc.Context) -> ExitStack:
        """Hold a key's place until the stack is closed or the call ends. Raises as `one` does.

        For a stream: its generator may wait for its end where the caller hangs up.
        """
        place = ExitStack()
        place.enter_context(self.one(key))
        _at_end(context, place)
        return place


def _at_end(context: rpc.Context, using: ExitStack) -> None:
    """Close a stack when a call ends."""

    def done(_context: object) -> None:
        using.close()

    context.add_done_callback(done)  # type: ignore[arg-type]  # any callable serves
