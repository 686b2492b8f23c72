"""SyncService over grpc.aio (spec/04-link).

It parses requests, calls the pure modules of syncd/ and encodes their results
(DECISIONS D83).
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, assert_never

import grpc
import structlog

from antiphon.v1 import sync_pb2 as pb
from replica import limits
from replica.conversation import Draft
from replica.errors import AntiphonError
from replica.ids import EntryId, Lane, PublicKey, short
from replica.io import rpc, status
from replica.link import (
    Authenticator,
    Entries,
    Fault,
    Frame,
    decode_frame,
    draft_to_pb,
    entries_from_pb,
    entries_to_pb,
    fault_to_pb,
    heads_from_pb,
    heads_to_pb,
)
from replica.log import entry_id, entry_to_pb
from replica.refusals import FrameTooLarge, Unauthenticated
from syncd import queries, watch
from syncd.connected import LinkId
from syncd.hint import Hint
from syncd.io.driver import HubDriver
from syncd.io.outbox import Item, Outbox
from syncd.io.requests import conversation_id

log = structlog.get_logger()


class SyncService:
    """The calls of SyncService."""

    def __init__(self, driver: HubDriver, authenticator: Authenticator) -> None:
        """Serve `driver`'s hub to keys with a ticket of `authenticator`."""
        self._driver = driver
        self._authenticator = authenticator

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """Return the byte-level handlers."""
        return grpc.method_handlers_generic_handler(
            "antiphon.v1.SyncService",
            {
                "Authenticate": rpc.unary(pb.AuthenticateRequest, self.authenticate),
                "Link": grpc.stream_stream_rpc_method_handler(self.link),
                "Push": rpc.unary(pb.PushRequest, self.push),
                "Watch": rpc.writing_stream(pb.WatchRequest, self.watch),
                "Fetch": rpc.server_stream(pb.FetchRequest, self.fetch),
                "Resolve": rpc.unary(pb.ResolveRequest, self.resolve),
                "Delete": rpc.unary(pb.DeleteRequest, self.delete),
            },
        )

    async def authenticate(
        self, request: pb.AuthenticateRequest, context: rpc.Context
    ) -> pb.AuthenticateResponse:
        """Prove possession of a key, which also extends its streams on this connection."""
        response = rpc.answer_authenticate(self._authenticator, request)
        if response.ticket:
            self._driver.renew(PublicKey(request.client_key), context.peer())
        return response

    # --- Link -------------------------------------------------------------------

    async def link(self, frames: AsyncIterator[bytes], context: rpc.Context) -> None:
        """Run one link until either side ends it."""
        async with rpc.answering(context):
            await self._run_link(rpc.caller(self._authenticator, context), frames, context)

    async def _run_link(
        self, peer: PublicKey, frames: AsyncIterator[bytes], context: rpc.Context
    ) -> None:
        def drop_link() -> None:
            self._driver.disconnect(link_id)
            reader.cancel()

        outbox = Outbox(drop_link)
        with self._driver.hold(peer, context.peer(), partial(outbox.end, Unauthenticated())):
            link_id = self._driver.connect(peer, outbox.put)
            reader = asyncio.create_task(self._read(link_id, frames, outbox), name="link reader")
            try:
                await outbox.write_all(context, _frame)
            finally:
                drop_link()

    async def _read(self, link_id: LinkId, frames: AsyncIterator[bytes], outbox: Outbox) -> None:
        """Read frames until the peer ends the stream, pausing while too much is queued for it."""
        try:
            async for data in frames:
                await outbox.drained()
                await self._driver.receive(link_id, decode_frame(data, "to_hub"), len(data))
        except AntiphonError as error:
            outbox.end(error)
        except Exception:
            log.exception("a link's reader failed")
            outbox.end(rpc.bug())
        else:
            outbox.put(None)

    # --- Push, Resolve, Fetch -------------------------------------------------------

    async def push(self, request: pb.PushRequest, context: rpc.Context) -> pb.PushResponse:
        """Append entries; the response follows once all admitted ones are durable."""
        peer = rpc.caller(self._authenticator, context)
        if request.ByteSize() > limits.FRAME_BYTES_MAX:
            raise FrameTooLarge(f"the request has {request.ByteSize()} bytes")
        message = entries_from_pb(request)
        outcomes = await self._driver.push(peer, message)
        ids = [entry_id(item.header) for item in request.entries]
        return pb.PushResponse(outcomes=[_outcome(i, outcomes[i]) for i in ids])

    async def resolve(self, request: pb.ResolveRequest, context: rpc.Context) -> pb.ResolveResponse:
        """Return the fate of an entry; of a request, also its seal and generation."""
        peer = rpc.caller(self._authenticator, context)
        held = await self._driver.permitted(peer, conversation_id(request.conversation))
        fate = queries.fate_of(held, EntryId(request.id))
        if isinstance(fate, queries.Held):
            await self._driver.flush(held.id)
        return _fate_to_pb(fate)

    async def delete(self, request: pb.DeleteRequest, context: rpc.Context) -> pb.DeleteResponse:
        """Delete a conversation and its blobs; owners only."""
        peer = rpc.caller(self._authenticator, context)
        conversation = conversation_id(request.conversation)
        entries = await self._driver.delete(peer, conversation)
        log.info("conversation deleted", conversation=short(conversation), by=short(peer))
        return pb.DeleteResponse(entries=entries)

    async def fetch(
        self, request: pb.FetchRequest, context: rpc.Context
    ) -> AsyncIterator[pb.FetchResponse]:
        """Send entries by id or lane range."""
        peer = rpc.caller(self._authenticator, context)
        held = await self._driver.permitted(peer, conversation_id(request.conversation))
        ids = [EntryId(one) for one in request.ids]
        ranges = map(_lane_range, request.ranges)
        responses = queries.fetch(held, ids, ranges, headers_only=request.headers_only)
        await self._driver.flush(held.id)
        for response in responses:
            yield pb.FetchResponse(
                entries=map(entry_to_pb, response.entries), absent=response.absent
            )

    # --- Watch ------------------------------------------------------------------------

    async def watch(self, request: pb.WatchRequest, context: rpc.Context) -> None:
        """Send a conversation's entries and drafts as they arrive, through a link of its own."""
        peer = rpc.caller(self._authenticator, context)
        conversation, cursor = conversation_id(request.conversation), heads_from_pb(request.cursor)
        opening = watch.opening(conversation, cursor, drafts=request.drafts)

        def drop_link() -> None:
            self._driver.disconnect(link_id)
            heartbeats.cancel()

        async def grant(taken_bytes: int) -> None:
            # gRPC's flow control has accepted the bytes, so the reader keeps up.
            await self._driver.receive(link_id, watch.grant(taken_bytes), 0)

        outbox = Outbox(drop_link)
        with self._driver.hold(peer, context.peer(), partial(outbox.end, Unauthenticated())):
            link_id = self._driver.connect(peer, outbox.put, watches=True)
            heartbeats = asyncio.create_task(
                self._send_heartbeats(link_id), name="watch heartbeats"
            )
            try:
                await self._driver.receive(link_id, watch.GREETING, 0)
                await self._driver.receive(link_id, opening, 0)
                await outbox.write_all(context, _watch_response, grant)
            finally:
                drop_link()

    async def _send_heartbeats(self, link_id: LinkId) -> None:
        """Send heartbeats for a watcher, which sends no messages; gRPC detects its absence."""
        while True:
            await asyncio.sleep(limits.HEARTBEAT_S)
            await self._driver.receive(link_id, watch.HEARTBEAT, 0)


def _outcome(entry: EntryId, fault: Fault | None) -> pb.PushOutcome:
    return pb.PushOutcome(
        id=entry,
        durable=fault is None,
        fault=fault_to_pb(fault) if fault is not None else None,
    )


def _fate_to_pb(fate: queries.Fate) -> pb.ResolveResponse:
    match fate:
        case queries.Unknown():
            return pb.ResolveResponse(fate=pb.FATE_UNKNOWN)
        case queries.Pending(missing):
            return pb.ResolveResponse(fate=pb.FATE_PENDING, missing=missing)
        case queries.Held(seal, generation):
            return pb.ResolveResponse(
                fate=pb.FATE_DURABLE, seal=seal or b"", generation=generation or b""
            )
        case _:
            assert_never(fate)


def _lane_range(raw: pb.LaneRange) -> queries.LaneRange:
    lane = Lane(PublicKey(raw.author), raw.epoch, raw.track)
    return queries.LaneRange(lane, raw.seq_start, raw.seq_end)


def _frame(item: Item) -> bytes | None:
    return item.data if isinstance(item, Frame) else None


def _watch_response(item: Item) -> bytes | None:
    """Return the response for an item, None if it has none; raise the error that ends a Watch."""
    message = item.message if isinstance(item, Frame) else item
    end = watch.end_of(message)
    if end is not None:
        raise status.error_of(end)
    match message:
        case Entries():
            return pb.WatchResponse(entries=entries_to_pb(message)).SerializeToString()
        case Hint():
            return pb.WatchResponse(hint=_hint_to_pb(message)).SerializeToString()
        case Draft():
            return pb.WatchResponse(draft=draft_to_pb(message)).SerializeToString()
        case _:
            return None


def _hint_to_pb(hint: Hint) -> pb.Hint:
    return pb.Hint(
        tip=hint.tip or b"",
        parents=hint.parents,
        basis=hint.tip or b"",
        lamport=hint.lamport,
        own_heads=heads_to_pb(hint.own_heads),
        membership_heads=hint.membership_heads,
    )
