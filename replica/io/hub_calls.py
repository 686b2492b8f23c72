"""The calls of a hub's services, with one ticket kept fresh (spec/04-link §3).

The key is proved again on the same connection, so that streams outlive the
ticket they began with (DECISIONS D34).
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.v1 import sync_pb2 as pb
from antiphon.v1.sync_pb2_grpc import SyncServiceStub
from replica import limits
from replica.conversation import EntryStore
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.io import rpc, status
from replica.link import Fault, entries_from_pb, fault_from_pb, heads_to_pb
from replica.log import Entry, entry_to_pb
from replica.refusals import Unauthenticated


async def pinned_key(store: EntryStore, address: str) -> PublicKey | None:
    """Return the key the hub at `address` proved at first contact; None before that."""
    pinned = await store.get_meta(_pin_name(address))
    return PublicKey(pinned) if pinned is not None else None


def _pin_name(address: str) -> str:
    return f"hub key {address}"


class HubCalls:
    """A channel to a hub and the calls that need no stream."""

    def __init__(self, address: str, key: Ed25519PrivateKey, store: EntryStore) -> None:
        """Connect lazily; the hub's key is pinned in `store` at first contact."""
        self.address = address
        self.channel: Any = grpc.aio.insecure_channel(address, options=rpc.CHANNEL_OPTIONS)
        self._stub: Any = SyncServiceStub(self.channel)
        self._key = key
        self._store = store
        self._ticket: bytes | None = None

    async def close(self) -> None:
        """Close the channel."""
        await self.channel.close()

    async def authenticate(self) -> tuple[PublicKey, bytes]:
        """Obtain a fresh ticket; return (hub key, ticket). Raises PeerIdentityChanged."""
        expected = await pinned_key(self._store, self.address)

        async def call(request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
            response: pb.AuthenticateResponse = await rpc.typed(
                self._stub.Authenticate(request, timeout=rpc.CALL_TIMEOUT_S)
            )
            return response

        hub_key, ticket = await rpc.obtain_ticket(call, self._key, expected)
        if expected is None:
            await self._store.put_meta(_pin_name(self.address), hub_key)
        self._ticket = ticket
        return hub_key, ticket

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Prove the key regularly during the block, so that streams outlive their ticket."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(limits.TICKET_LIFETIME_S / 3)
                with suppress(AntiphonError):  # the streams report errors of the hub
                    await self.authenticate()

        renewing = asyncio.create_task(renew(), name="ticket renewal")
        try:
            yield
        finally:
            renewing.cancel()

    async def _ticket_metadata(self) -> tuple[tuple[str, bytes], ...]:
        if self._ticket is None:
            await self.authenticate()
        return ((rpc.TICKET_METADATA, self._ticket or b""),)

    async def _call(self, name: str, request: Any) -> Any:
        method = getattr(self._stub, name)
        for attempt in range(2):
            metadata = await self._ticket_metadata()
            try:
                return await rpc.typed(
                    method(request, metadata=metadata, timeout=rpc.CALL_TIMEOUT_S)
                )
            except Unauthenticated:
                self._ticket = None  # expired, or the hub restarted: retry once with a new one
                if attempt:
                    raise
        raise AssertionError("the loop returns or raises")

    async def _stream(self, name: str, request: Any, **options: float) -> AsyncGenerator[Any, None]:
        """Yield the responses of a server stream; a refused ticket is replaced once."""
        method = getattr(self._stub, name)
        is_last = False
        while True:
            call = method(request, metadata=await self._ticket_metadata(), **options)
            try:
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
        response = await self._call("Push", request)
        return {
            EntryId(o.id): None if o.durable else fault_from_pb(o.fault) for o in response.outcomes
        }

    async def resolve(self, conversation: ConversationId, entry: EntryId) -> pb.ResolveResponse:
        """Return the fate of an entry; of a request, also its seal and generation."""
        request = pb.ResolveRequest(conversation=conversation, id=entry)
        response: pb.ResolveResponse = await self._call("Resolve", request)
        return response

    async def fetch(self, conversation: ConversationId, ids: Sequence[EntryId]) -> list[Entry]:
        """Return the entries of `ids` that the hub holds; signatures are not checked yet."""
        found: list[Entry] = []
        for at in range(0, len(ids), limits.FETCH_IDS_MAX):
            wanted = pb.FetchRequest(
                conversation=conversation, ids=ids[at : at + limits.FETCH_IDS_MAX]
            )
            async for response in self._stream("Fetch", wanted, timeout=rpc.CALL_TIMEOUT_S):
                raw = pb.Entries(conversation=conversation, entries=response.entries)
                found += entries_from_pb(raw).entries
        return found

    async def watch(
        self, conversation: ConversationId, cursor: Iterable[Position]
    ) -> AsyncIterator[tuple[Entry, ...]]:
        """Yield the hub's entries behind the lane heads `cursor`, then new ones as they arrive.

        A hub may end the stream; call again with the heads reached. Raises
        HubUnreachable, LinkIdle and the hub's refusal.
        """
        request = pb.WatchRequest(conversation=conversation, cursor=heads_to_pb(cursor))
        async with self.renewed(), aclosing(self._stream("Watch", request)) as responses:
            async for response in responses:
                if response.HasField("entries"):
                    yield entries_from_pb(response.entries).entries

    async def delete(self, conversation: ConversationId) -> int:
        """Delete a conversation from the hub (owners only); return the number of entries."""
        response = await self._call("Delete", pb.DeleteRequest(conversation=conversation))
        return int(response.entries)
