"""The calls of a hub's services, with one ticket kept fresh (spec/04-link §3).

The key is proved again on the same connection, so that streams outlive the
ticket they began with (DECISIONS D34).
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.v1 import sync_pb2 as pb
from antiphon.v1.sync_pb2_grpc import SyncServiceStub
from replica import limits
from replica.conversation import EntryStore, is_loopback
from replica.errors import AntiphonError, ReplicaClosed
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.io.calls.hub_channel import (
    HubChannel,
    RetiredChannels,
    explained,
    plain_channel,
    secure_channel,
    served_certificate,
)
from replica.io.serving import next_message, require_known_key, rpc, status
from replica.io.store import HUB_KEY
from replica.link import Fault, entries_from_pb, fault_from_pb, heads_to_pb
from replica.log import Entry, entry_to_pb
from replica.refusals import HubUnreachable, PinDamaged, Unauthenticated, ValueDamaged

Metadata = tuple[tuple[str, bytes], ...]
Answer = TypeVar("Answer")


async def pinned_key(store: EntryStore, address: str) -> PublicKey | None:
    """Return the key pinned for the hub at `address`; None before the first contact.

    Raises PinDamaged.
    """
    try:
        pinned = await store.get_meta(f"{HUB_KEY}{address}")
    except ValueDamaged as error:
        raise PinDamaged(f"the key pinned for {address} can't be read") from error
    return PublicKey(pinned) if pinned is not None else None


async def pin(store: EntryStore, address: str, key: PublicKey) -> None:
    """Pin the key of the hub at `address`, in place of any other."""
    await store.put_meta(f"{HUB_KEY}{address}", key)


class HubCalls:
    """A channel to a hub and the calls that need no stream."""

    def __init__(
        self,
        address: str,
        key: Ed25519PrivateKey,
        store: EntryStore,
        hub_key: PublicKey | None = None,
    ) -> None:
        """Connect lazily; `hub_key` is the key the hub must prove, None for the one pinned.

        On loopback an unknown key is pinned in `store` at first contact.
        """
        self.address = address
        self._key = key
        self._store = store
        self._hub_key = hub_key
        self._ticket: bytes | None = None
        self._channel: HubChannel | None = plain_channel(address) if is_loopback(address) else None
        self._retired = RetiredChannels()
        self.is_closed = False

    @property
    def channel(self) -> Any:
        """The gRPC channel, for streams; only after `authenticate`."""
        assert self._channel is not None, "authenticate() comes first"
        return self._channel.grpc

    def stub(self, service: Callable[[Any], Any]) -> Any:
        """Return the stub of a service over the channel in use; only after `authenticate`.

        A renewed certificate replaces the channel.
        """
        assert self._channel is not None, "authenticate() comes first"
        return self._channel.stub(service)

    async def close(self) -> None:
        """Close the channel. Calls in progress raise ReplicaClosed, and so do later ones."""
        self.is_closed = True
        await self._retired.close()
        if self._channel is not None:
            await self._channel.grpc.close()

    async def authenticate(self, *, may_reconnect: bool = True) -> tuple[PublicKey, bytes]:
        """Obtain a fresh ticket; return (hub key, ticket).

        Streams are extended on their own connection, so without `may_reconnect`.
        Raises PeerIdentityChanged, PinDamaged, HubKeyUnknown, ProofInvalid, HubUnreachable.
        """
        pinned = await pinned_key(self._store, self.address)
        expected = self._hub_key or pinned
        require_known_key(expected, self.address)
        hub_key, ticket = await self._prove(expected, may_reconnect=may_reconnect)
        if pinned is None:
            await pin(self._store, self.address, hub_key)
        self._ticket = ticket
        return hub_key, ticket

    async def proved_key(self) -> PublicKey:
        """Return the key that the hub proves now, whatever is pinned; pin nothing."""
        hub_key, _ = await self._prove(None)
        return hub_key

    async def _prove(
        self, expected: PublicKey | None, *, may_reconnect: bool = True
    ) -> tuple[PublicKey, bytes]:
        """Authenticate; connect first if the hub shows another certificate than before."""
        channel = await self._next_channel() if may_reconnect else self._channel
        assert channel is not None, "streams have a channel"
        stub = channel.stub(SyncServiceStub)

        async def call(request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
            with _until_closed(self):
                response: pb.AuthenticateResponse = await rpc.typed(
                    stub.Authenticate(request, timeout=rpc.CALL_TIMEOUT_S)
                )
            return response

        try:
            done = await rpc.obtain_ticket(call, self._key, expected, channel.certificate_digest)
            self.check_open()  # else nobody would close this channel
        except BaseException as error:
            if channel is not self._channel:
                await channel.grpc.close()
            if isinstance(error, HubUnreachable):
                raise await explained(self.address, error) from error
            raise
        if channel is not self._channel:
            # Calls may still run on the old one, which only a proved hub can replace.
            if self._channel is not None:
                self._retired.add(self._channel)
            self._channel = channel
        return done

    async def _next_channel(self) -> HubChannel:
        held = self._channel
        if held is not None and is_loopback(self.address):
            return held
        shown = await served_certificate(self.address)
        if held is not None and held.accepts(shown):
            return held
        return secure_channel(self.address, shown)

    def check_open(self) -> None:
        """Refuse to go on behind `close`. Raises ReplicaClosed."""
        if self.is_closed:
            raise ReplicaClosed

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Prove the key regularly during the block, so that streams outlive their ticket."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(limits.TICKET_LIFETIME_S / 3)
                with suppress(AntiphonError):  # the streams report errors of the hub
                    await self.authenticate(may_reconnect=False)

        renewing = asyncio.create_task(renew(), name="ticket renewal")
        try:
            yield
        finally:
            renewing.cancel()

    async def ticketed(self, call: Callable[[Metadata], Awaitable[Answer]]) -> Answer:
        """Await a call of the hub with a ticket; a refused one is replaced once.

        The call may be made twice. Raises the hub's refusal and HubUnreachable.
        """
        for attempt in range(2):
            metadata = await self._ticket_metadata()
            try:
                return await call(metadata)
            except Unauthenticated:
                self._ticket = None  # expired, or the hub restarted: retry once with a new one
                if attempt:
                    raise
        raise AssertionError("the loop returns or raises")

    async def _ticket_metadata(self) -> Metadata:
        if self._ticket is None:
            await self.authenticate()
        return ((rpc.TICKET_METADATA, self._ticket or b""),)

    async def unary(
        self, service: Any, name: str, request: Any, timeout_s: float | None = None
    ) -> Any:
        """Call a method of a service of the hub, given by its stub, with a ticket.

        It has CALL_TIMEOUT_S unless `timeout_s` is given.
        """
        bound_s = rpc.CALL_TIMEOUT_S if timeout_s is None else timeout_s

        async def call(metadata: Metadata) -> Any:
            with _until_closed(self):
                method = getattr(self.stub(service), name)
                return await rpc.typed(method(request, metadata=metadata, timeout=bound_s))

        return await self.ticketed(call)

    async def _stream(self, name: str, request: Any, **options: float) -> AsyncGenerator[Any, None]:
        """Yield the responses of a server stream; a refused ticket is replaced once."""
        is_last = False
        while True:
            metadata = await self._ticket_metadata()
            call = getattr(self.stub(SyncServiceStub), name)(request, metadata=metadata, **options)
            try:
                with _until_closed(self):
                    async for response in call:
                        is_last = True  # a retry would repeat the responses
                        yield response
            except grpc.aio.AioRpcError as error:
                known = status.from_rpc_error(error)
                if isinstance(known, Unauthenticated):
                    self._ticket = None
                if is_last or not isinstance(known, Unauthenticated):
                    raise known from error
                is_last = True
            else:
                return
            finally:
                call.cancel()

    async def push(
        self, conversation: ConversationId, entries: tuple[Entry, ...]
    ) -> dict[EntryId, Fault | None]:
        """Append entries; return per entry None if it is durable, else its fault."""
        request = pb.PushRequest(
            conversation=conversation, entries=[entry_to_pb(e) for e in entries]
        )
        response = await self.unary(SyncServiceStub, "Push", request)
        return {
            EntryId(o.id): None if o.durable else fault_from_pb(o.fault) for o in response.outcomes
        }

    async def resolve(self, conversation: ConversationId, entry: EntryId) -> pb.ResolveResponse:
        """Return the fate of an entry; of a request, also its seal and generation."""
        request = pb.ResolveRequest(conversation=conversation, id=entry)
        response: pb.ResolveResponse = await self.unary(SyncServiceStub, "Resolve", request)
        return response

    async def fetch(self, conversation: ConversationId, ids: Sequence[EntryId]) -> list[Entry]:
        """Return the entries of `ids` that the hub holds; see `fetched`."""
        return [one async for entries in self.fetched(conversation, ids) for one in entries]

    async def fetched(
        self, conversation: ConversationId, ids: Sequence[EntryId]
    ) -> AsyncGenerator[tuple[Entry, ...], None]:
        """Yield those entries of `ids` that the hub holds; signatures are not checked yet.

        What else the hub sends is dropped, and so is an entry that comes again. Raises
        HubUnreachable if none of them comes for 20 s, and the hub's refusal.
        """
        awaited = set(ids)
        for at in range(0, len(ids), limits.FETCH_IDS_MAX):
            wanted = pb.FetchRequest(
                conversation=conversation, ids=ids[at : at + limits.FETCH_IDS_MAX]
            )
            async with aclosing(self._stream("Fetch", wanted)) as responses:
                while (
                    entries := await _next_awaited(responses, conversation, awaited)
                ) is not None:
                    yield entries

    async def watch(
        self, conversation: ConversationId, cursor: Iterable[Position]
    ) -> AsyncIterator[tuple[Entry, ...]]:
        """Yield the hub's entries behind the lane heads `cursor`, then new ones as they arrive.

        `cursor_of` chooses as many heads as a hub takes.

        A hub may end the stream; call again with the heads reached. LinkIdle means that
        even its beats are missing (LINK-81). Raises
        HubUnreachable, LinkIdle and the hub's refusal.
        """
        request = pb.WatchRequest(conversation=conversation, cursor=heads_to_pb(cursor))
        async with self.renewed(), aclosing(self._stream("Watch", request)) as responses:
            while (response := await next_message(responses)) is not None:
                if response.HasField("entries"):
                    yield entries_from_pb(response.entries).entries

    async def delete(self, conversation: ConversationId) -> int:
        """Delete a conversation from the hub (owners only); return the number of entries."""
        response = await self.unary(
            SyncServiceStub, "Delete", pb.DeleteRequest(conversation=conversation)
        )
        return int(response.entries)


@contextmanager
def _until_closed(calls: HubCalls) -> Iterator[None]:
    """Raise ReplicaClosed for a call behind the close, or one that gRPC cancels there.

    Raises HubUnreachable for a call on a channel that was replaced meanwhile.
    """
    calls.check_open()
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not calls.is_closed or (task is not None and task.cancelling()):
            raise  # the caller was cancelled
        raise ReplicaClosed from None
    except grpc.aio.UsageError as error:
        if not calls.is_closed:
            raise HubUnreachable("the hub's certificate was replaced meanwhile") from error
        raise ReplicaClosed from error


async def _next_awaited(
    responses: AsyncIterator[pb.FetchResponse],
    conversation: ConversationId,
    awaited: set[EntryId],
) -> tuple[Entry, ...] | None:
    """Return the next entries that are still awaited, None at the end. Raises HubUnreachable.

    A Fetch may take long, as one of many bodies over a slow line; each of its steps may not.
    """
    try:
        async with asyncio.timeout(rpc.CALL_TIMEOUT_S):
            while (response := await anext(responses, None)) is not None:
                raw = pb.Entries(conversation=conversation, entries=response.entries)
                sent = entries_from_pb(raw).entries
                entries = {entry.id: entry for entry in sent if entry.id in awaited}
                awaited.difference_update(entries)
                if entries:
                    return tuple(entries.values())
    except TimeoutError as error:
        silence = f"nothing that was asked for came for {rpc.CALL_TIMEOUT_S:.0f} s"
        raise HubUnreachable(silence) from error
    return None
