"""The unary calls of a hub, with one ticket kept fresh (spec/04-link §3)."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import grpc
from antiphon.v1 import sync_pb2 as pb
from antiphon.v1.sync_pb2_grpc import SyncServiceStub
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.aio import rpc, status
from replica.aio.store import Store
from replica.codec.entries import entry_to_pb
from replica.codec.frames import entries_from_pb, fault_from_pb, heads_to_pb
from replica.effects import Fault
from replica.entry import Entry
from replica.ids import ConversationId, EntryId, Position, PublicKey
from replica.limits import FETCH_IDS_MAX
from replica.refusals import Unauthenticated


async def pinned_key(store: Store, address: str) -> PublicKey | None:
    """Return the key the hub at `address` proved at first contact; None before that."""
    pinned = await store.get_meta(_pin_name(address))
    return PublicKey(pinned) if pinned is not None else None


def _pin_name(address: str) -> str:
    return f"hub key {address}"


class HubCalls:
    """A channel to a hub and the calls that need no stream."""

    def __init__(self, address: str, key: Ed25519PrivateKey, store: Store) -> None:
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

    async def _call(self, name: str, request: Any) -> Any:
        for attempt in range(2):
            if self._ticket is None:
                await self.authenticate()
            metadata = ((rpc.TICKET_METADATA, self._ticket or b""),)
            method = getattr(self._stub, name)
            try:
                return await rpc.typed(
                    method(request, metadata=metadata, timeout=rpc.CALL_TIMEOUT_S)
                )
            except Unauthenticated:
                self._ticket = None  # expired, or the hub was reborn: once more with a new one
                if attempt:
                    raise
        raise AssertionError("the loop returns or raises")

    async def push(
        self, conversation: ConversationId, entries: tuple[Entry, ...]
    ) -> dict[EntryId, Fault | None]:
        """Append entries; per entry None once it is durable, else its fault."""
        request = pb.PushRequest(
            conversation=conversation, entries=[entry_to_pb(e) for e in entries]
        )
        response = await self._call("Push", request)
        return {
            EntryId(o.id): None if o.durable else fault_from_pb(o.fault) for o in response.outcomes
        }

    async def resolve(self, conversation: ConversationId, entry: EntryId) -> pb.ResolveResponse:
        """Ask what became of an entry or a request."""
        request = pb.ResolveRequest(conversation=conversation, id=entry)
        response: pb.ResolveResponse = await self._call("Resolve", request)
        return response

    async def fetch(self, conversation: ConversationId, ids: Sequence[EntryId]) -> list[Entry]:
        """Return those of the entries asked for that the hub holds, checked but for signatures."""
        if self._ticket is None:
            await self.authenticate()
        found: list[Entry] = []
        for at in range(0, len(ids), FETCH_IDS_MAX):
            wanted = pb.FetchRequest(conversation=conversation, ids=ids[at : at + FETCH_IDS_MAX])
            metadata = ((rpc.TICKET_METADATA, self._ticket or b""),)
            call = self._stub.Fetch(wanted, metadata=metadata, timeout=rpc.CALL_TIMEOUT_S)
            try:
                async for response in call:
                    raw = pb.Entries(conversation=conversation, entries=response.entries)
                    found += entries_from_pb(raw).entries
            except grpc.aio.AioRpcError as error:
                raise status.from_rpc_error(error) from error
        return found

    async def watch(
        self, conversation: ConversationId, cursor: Iterable[Position]
    ) -> AsyncIterator[tuple[Entry, ...]]:
        """Yield what the hub has behind the lane heads `cursor`, and then what arrives.

        A hub ends it now and then; call again with the heads of then. Raises
        HubUnreachable, LinkIdle and what the hub refuses with.
        """
        if self._ticket is None:
            await self.authenticate()
        request = pb.WatchRequest(conversation=conversation, cursor=heads_to_pb(cursor))
        call = self._stub.Watch(request, metadata=((rpc.TICKET_METADATA, self._ticket or b""),))
        try:
            async for response in call:
                if response.HasField("entries"):
                    yield entries_from_pb(response.entries).entries
        except grpc.aio.AioRpcError as error:
            self._ticket = None  # it may be the reason; the next call gets a new one
            raise status.from_rpc_error(error) from error
        finally:
            call.cancel()

    async def delete(self, conversation: ConversationId) -> int:
        """Delete a conversation from the hub (owners only); return how many entries went."""
        response = await self._call("Delete", pb.DeleteRequest(conversation=conversation))
        return int(response.entries)
