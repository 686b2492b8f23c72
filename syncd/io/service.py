"""SyncService over grpc.aio (spec/04-link): thin, the rules are in syncd/hub.py."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import structlog

from antiphon.v1 import sync_pb2 as pb
from replica import limits
from replica.conversation import Conversation, Draft
from replica.errors import AntiphonError
from replica.ids import ID_BYTES, ConversationId, EntryId, Lane, PublicKey, Track, short
from replica.io import rpc, status
from replica.link import (
    VERSION,
    Authenticator,
    Close,
    Credit,
    Entries,
    Fault,
    Hello,
    Open,
    Ping,
    decode_frame,
    draft_to_pb,
    encode_frame,
    entries_from_pb,
    entries_to_pb,
    fault_to_pb,
    heads_from_pb,
    heads_to_pb,
)
from replica.log import (
    CONTROL_KINDS,
    Entry,
    Log,
    Role,
    decode_body,
    digest_of,
    entry_id,
    entry_to_pb,
    listed_ids,
)
from replica.refusals import (
    ArgumentInvalid,
    ConversationDeleted,
    ConversationUnknown,
    FrameTooLarge,
    NotAllowed,
    Unauthenticated,
)
from syncd.hint import Hint
from syncd.hub import LinkId
from syncd.io.driver import HubDriver
from syncd.io.outbox import Item, Outbox
from syncd.io.streams import Streams

log = structlog.get_logger()


def _outcome(entry: EntryId, fault: Fault | None) -> pb.PushOutcome:
    return pb.PushOutcome(
        id=entry,
        durable=fault is None,
        fault=fault_to_pb(fault) if fault is not None else None,
    )


def _conversation(value: bytes) -> ConversationId:
    if len(value) != ID_BYTES:
        raise ArgumentInvalid("conversation: 32 bytes")
    return ConversationId(value)


class SyncService:
    """The calls of SyncService."""

    def __init__(self, driver: HubDriver, authenticator: Authenticator) -> None:
        """Serve `driver`'s hub to those to whom `authenticator` gave a ticket."""
        self._driver = driver
        self._authenticator = authenticator
        self._streams = Streams(driver.hub.policy.links_per_key_max)

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
        """Prove possession of a key; the streams of this connection then go on as long again."""
        response = rpc.answer_authenticate(self._authenticator, request)
        if response.ticket:
            self._streams.renew(PublicKey(request.client_key), context.peer())
        return response

    # --- Link -------------------------------------------------------------------

    async def link(self, frames: AsyncIterator[bytes], context: rpc.Context) -> None:
        """Run one link until either side ends it."""
        async with rpc.answering(context):
            await self._run_link(rpc.caller(self._authenticator, context), frames, context)

    async def _run_link(
        self, peer: PublicKey, frames: AsyncIterator[bytes], context: rpc.Context
    ) -> None:
        def let_go() -> None:
            self._driver.disconnect(link_id)
            reader.cancel()

        outbox = Outbox(let_go)
        with self._streams.hold(peer, context.peer(), partial(outbox.end, Unauthenticated())):
            link_id = self._driver.connect(peer, outbox.put)
            reader = asyncio.create_task(self._read(link_id, frames, outbox), name="link reader")
            try:
                await outbox.pour(context, _frame)
            finally:
                let_go()

    async def _read(self, link_id: LinkId, frames: AsyncIterator[bytes], outbox: Outbox) -> None:
        """Take frames until the peer ends the stream; no faster than it takes the answers."""
        try:
            async for data in frames:
                await outbox.room()
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
        """Append; answered once everything admitted is durable."""
        peer = rpc.caller(self._authenticator, context)
        if request.ByteSize() > limits.FRAME_BYTES_MAX:
            raise FrameTooLarge(f"the request has {request.ByteSize()} bytes")
        message = entries_from_pb(
            pb.Entries(conversation=request.conversation, entries=request.entries)
        )
        outcomes = await self._driver.push(peer, message)
        ids = [entry_id(item.header) for item in request.entries]
        return pb.PushResponse(outcomes=[_outcome(i, outcomes[i]) for i in ids])

    async def member(
        self, conversation: bytes, context: rpc.Context, *, role_writes: bool = False
    ) -> Conversation:
        """Return a conversation the caller is a member of, and may write to if asked.

        Raises ConversationUnknown, ConversationDeleted, NotAllowed.
        """
        peer = rpc.caller(self._authenticator, context)
        conversation_id = _conversation(conversation)
        await self._driver.ensure_loaded(conversation_id)
        if conversation_id in self._driver.hub.deleted:
            raise ConversationDeleted
        held = self._driver.hub.shelf.get(conversation_id)
        if held is None or not held.is_member(peer):
            raise ConversationUnknown
        if role_writes and held.log.membership.roles[peer] <= {Role.READER}:
            raise NotAllowed("readers write no blobs")
        return held

    async def resolve(self, request: pb.ResolveRequest, context: rpc.Context) -> pb.ResolveResponse:
        """Say what became of an entry; of a request, also its seal and generation."""
        held = await self.member(request.conversation, context)
        wanted = EntryId(request.id)
        waiting = held.log.pending.get(wanted)
        if waiting is not None:
            missing = _missing(held.log, waiting)
            return pb.ResolveResponse(fate=pb.FATE_PENDING, missing=missing)
        if wanted not in held.log.entries:
            return pb.ResolveResponse(fate=pb.FATE_UNKNOWN)
        # What is admitted may still be on its way to the disk.
        await self._driver.performer.flush(held.id)
        return pb.ResolveResponse(
            fate=pb.FATE_DURABLE,
            seal=held.order.seal_of.get(wanted, b""),
            generation=held.order.generation_of(wanted) or b"",
        )

    async def delete(self, request: pb.DeleteRequest, context: rpc.Context) -> pb.DeleteResponse:
        """Delete a conversation and its blobs; owners only."""
        held = await self.member(request.conversation, context)
        peer = rpc.caller(self._authenticator, context)
        if Role.OWNER not in held.log.membership.roles[peer]:
            raise NotAllowed("only an owner deletes a conversation")
        entries = await self._driver.delete(held.id)
        log.info("conversation deleted", conversation=short(held.id), by=short(peer))
        return pb.DeleteResponse(entries=entries)

    async def fetch(
        self, request: pb.FetchRequest, context: rpc.Context
    ) -> AsyncIterator[pb.FetchResponse]:
        """Send entries by id or lane range."""
        held = await self.member(request.conversation, context)
        if len(request.ids) > limits.FETCH_IDS_MAX:
            raise ArgumentInvalid(f"ids: at most {limits.FETCH_IDS_MAX}")
        await self._driver.performer.flush()
        wanted = {EntryId(i) for i in request.ids}
        for lane_range in request.ranges:
            wanted |= self._in_range(held, lane_range)
        present = wanted & held.log.entries.keys()
        absent = sorted(wanted - present)
        response, size = pb.FetchResponse(), 0
        for entry in held.log.in_send_order(present):
            raw = entry_to_pb(entry)
            if request.headers_only and held.log.is_withholdable(entry):
                raw.ClearField("body")
            if size + raw.ByteSize() > limits.FRAME_BYTES_MAX // 2 and response.entries:
                yield response
                response, size = pb.FetchResponse(), 0
            response.entries.append(raw)
            size += raw.ByteSize()
        response.absent.extend(absent)
        yield response

    def _in_range(self, held: Conversation, lane_range: pb.LaneRange) -> set[EntryId]:
        lane = Lane(PublicKey(lane_range.author), lane_range.epoch, lane_range.track)
        end = lane_range.seq_end or held.log.lane_length(lane)
        end = min(end, held.log.lane_length(lane))
        return {i for seq in range(lane_range.seq_start, end) for i in held.log.at(lane, seq)}

    # --- Watch ------------------------------------------------------------------------

    async def watch(self, request: pb.WatchRequest, context: rpc.Context) -> None:
        """Follow a conversation: a link whose other half we speak ourselves."""
        peer = rpc.caller(self._authenticator, context)
        opening = _opening(request)

        def let_go() -> None:
            self._driver.disconnect(link_id)
            beat.cancel()

        async def grant(taken_bytes: int) -> None:
            # gRPC's own flow control has taken it: the reader keeps up.
            await self._driver.receive(link_id, Credit(taken_bytes + limits.CREDIT_BYTES), 0)

        outbox = Outbox(let_go)
        with self._streams.hold(peer, context.peer(), partial(outbox.end, Unauthenticated())):
            link_id = self._driver.connect(peer, outbox.put, watches=True)
            beat = asyncio.create_task(self._beat(link_id), name="watch beat")
            try:
                await self._driver.receive(link_id, Hello((VERSION,)), 0)
                await self._driver.receive(link_id, opening, 0)
                await outbox.pour(context, _watch_response, grant)
            finally:
                let_go()

    async def _beat(self, link_id: LinkId) -> None:
        """Beat for a watcher, whose only word was its request; gRPC sees to its being there."""
        while True:
            await asyncio.sleep(limits.HEARTBEAT_S)
            await self._driver.receive(link_id, Ping(0), 0)


def _missing(log: Log, waiting: Entry) -> list[EntryId]:
    """Return what an entry waits for that is not here at all: named, or listed by its body."""
    missing: list[EntryId] = []
    seen, todo = {waiting.id}, [waiting]
    while todo:
        entry = todo.pop()
        is_control = entry.header.kind in CONTROL_KINDS and entry.body is not None
        body = decode_body(entry.header.kind, entry.body or b"") if is_control else None
        for named in (*entry.header.ancestors(), *listed_ids(body)):
            if named in seen or named in log.entries:
                continue
            seen.add(named)
            if named in log.pending:
                todo.append(log.pending[named])
            else:
                missing.append(named)
    return sorted(missing)


def _frame(item: Item) -> bytes | None:
    return None if isinstance(item, Hint) else encode_frame(item, "to_client")


def _opening(request: pb.WatchRequest) -> Open:
    cursor = heads_from_pb(request.cursor)
    if any(head.lane.track not in set(Track) for head in cursor):
        raise ArgumentInvalid("cursor: no such track")
    # With the digest of the cursor itself, "nothing new" comes back as "equal".
    digest = digest_of(sorted(cursor))
    return Open(_conversation(request.conversation), digest, cursor, request.drafts)


def _watch_response(item: Item) -> bytes | None:
    """Return what a watcher is told of an item; raises what ends the call."""
    match item:
        case Entries():
            return pb.WatchResponse(entries=entries_to_pb(item)).SerializeToString()
        case Hint():
            return pb.WatchResponse(hint=_hint_to_pb(item)).SerializeToString()
        case Draft():
            return pb.WatchResponse(draft=draft_to_pb(item)).SerializeToString()
        case Fault() as fault:
            raise status.error_of(fault)
        case Close(_, fault):
            raise status.error_of(fault or Fault.of(ConversationUnknown()))
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
