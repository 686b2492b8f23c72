"""SyncService over grpc.aio (spec/04-link): thin, the rules are in syncd/hub.py."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import structlog
from antiphon.v1 import sync_pb2 as pb

from replica import limits
from replica.aio import rpc, status
from replica.aio.blobs import Blobs
from replica.auth import Doorkeeper
from replica.body import Role
from replica.codec.entries import entry_to_pb
from replica.codec.frames import (
    decode_frame,
    draft_to_pb,
    encode_frame,
    entries_from_pb,
    entries_to_pb,
    fault_to_pb,
    heads_from_pb,
    heads_to_pb,
)
from replica.conversation import Conversation
from replica.effects import (
    Close,
    Credit,
    Draft,
    Entries,
    Fault,
    Hello,
    Message,
    Open,
    Opened,
    Ping,
)
from replica.errors import AntiphonError
from replica.ids import ID_BYTES, ConversationId, EntryId, Lane, PublicKey, short
from replica.link import VERSION
from replica.log import digest_of
from replica.refusals import (
    ArgumentInvalid,
    ConversationUnknown,
    NotAllowed,
    QuotaExceeded,
    SlowReader,
)
from syncd.aio.driver import HubDriver
from syncd.hub import LinkId

log = structlog.get_logger()

OUTBOX_MESSAGES_MAX = 20_000
"""Messages waiting for one stream; credit bounds their bytes, this their number."""


class Outbox:
    """What waits for one stream, in order; never blocks the performer."""

    def __init__(self) -> None:
        """Start empty."""
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue()
        self.overflowed = False

    def put(self, message: Message | None) -> None:
        """Queue a message; None ends the stream."""
        if self._queue.qsize() >= OUTBOX_MESSAGES_MAX:
            self.overflowed = True
            message = None
        self._queue.put_nowait(message)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yield messages until the end of the stream."""
        while (message := await self._queue.get()) is not None:
            yield message


def _conversation(value: bytes) -> ConversationId:
    if len(value) != ID_BYTES:
        raise ArgumentInvalid("conversation: 32 bytes")
    return ConversationId(value)


class SyncService:
    """The calls of SyncService."""

    def __init__(self, driver: HubDriver, doorkeeper: Doorkeeper, blobs: Blobs) -> None:
        """Serve `driver`'s hub to whoever `doorkeeper` lets in."""
        self._driver = driver
        self._doorkeeper = doorkeeper
        self._blobs = blobs

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        """Return the byte-level handlers."""
        return grpc.method_handlers_generic_handler(
            "antiphon.v1.SyncService",
            {
                "Authenticate": rpc.unary(pb.AuthenticateRequest, self.authenticate),
                "Link": grpc.stream_stream_rpc_method_handler(self.link),
                "Push": rpc.unary(pb.PushRequest, self.push),
                "Watch": rpc.server_stream(pb.WatchRequest, self.watch),
                "Fetch": rpc.server_stream(pb.FetchRequest, self.fetch),
                "Resolve": rpc.unary(pb.ResolveRequest, self.resolve),
                "Delete": rpc.unary(pb.DeleteRequest, self.delete),
            },
        )

    async def authenticate(
        self, request: pb.AuthenticateRequest, _context: rpc.Context
    ) -> pb.AuthenticateResponse:
        """Prove possession of a key."""
        return rpc.answer_authenticate(self._doorkeeper, request)

    # --- Link -------------------------------------------------------------------

    async def link(self, frames: AsyncIterator[bytes], context: rpc.Context) -> None:
        """Run one link until either side ends it."""
        try:
            peer = rpc.caller(self._doorkeeper, context)
            self._check_link_quota(peer)
        except AntiphonError as error:
            await status.abort(context, error)
        outbox = Outbox()
        link_id = self._driver.connect(peer, outbox.put)

        async def read() -> None:
            try:
                async for data in frames:
                    message = decode_frame(data, "to_hub")
                    await self._driver.receive(link_id, message, len(data))
            except AntiphonError as error:
                outbox.put(Close(None, Fault.of(error)))
            outbox.put(None)

        reader = asyncio.create_task(read(), name="link reader")
        try:
            async for message in outbox:
                await context.write(encode_frame(message, "to_client"))
            if outbox.overflowed:
                await status.abort(context, SlowReader())
        finally:
            self._driver.disconnect(link_id)
            reader.cancel()

    def _check_link_quota(self, peer: PublicKey) -> None:
        hub = self._driver.hub
        held = sum(link.peer == peer for link in hub.links.values())
        if held >= hub.policy.links_per_key_max:
            raise QuotaExceeded(f"this key holds {held} links already")

    # --- Push, Resolve, Fetch -------------------------------------------------------

    async def push(self, request: pb.PushRequest, context: rpc.Context) -> pb.PushResponse:
        """Append; answered once everything admitted is durable."""
        peer = rpc.caller(self._doorkeeper, context)
        message = entries_from_pb(
            pb.Entries(conversation=request.conversation, entries=request.entries)
        )
        outcomes = await self._driver.push(peer, message)
        return pb.PushResponse(
            outcomes=[
                pb.PushOutcome(
                    id=entry_id,
                    durable=fault is None,
                    fault=fault_to_pb(fault) if fault is not None else None,
                )
                for entry_id, fault in outcomes.items()
            ]
        )

    async def member(
        self, conversation: bytes, context: rpc.Context, *, role_writes: bool = False
    ) -> Conversation:
        """Return a conversation the caller is a member of, and may write to if asked.

        Raises ConversationUnknown, NotAllowed.
        """
        peer = rpc.caller(self._doorkeeper, context)
        conversation_id = _conversation(conversation)
        await self._driver.ensure_loaded(conversation_id)
        held = self._driver.hub.shelf.get(conversation_id)
        if held is None or not held.is_member(peer):
            raise ConversationUnknown
        if role_writes and held.log.membership.roles[peer] <= {Role.READER}:
            raise NotAllowed("readers write no blobs")
        return held

    async def resolve(self, request: pb.ResolveRequest, context: rpc.Context) -> pb.ResolveResponse:
        """Say what became of an entry; of a request, also its seal and generation."""
        held = await self.member(request.conversation, context)
        entry_id = EntryId(request.id)
        waiting = held.log.pending.get(entry_id)
        if waiting is not None:
            named = waiting.header.ancestors()
            missing = [i for i in named if i not in held.log.entries]
            return pb.ResolveResponse(fate=pb.FATE_PENDING, missing=missing)
        if entry_id not in held.log.entries:
            return pb.ResolveResponse(fate=pb.FATE_UNKNOWN)
        # What is admitted may still be on its way to the disk.
        await self._driver.performer.flush()
        return pb.ResolveResponse(
            fate=pb.FATE_DURABLE,
            seal=held.order.seal_of.get(entry_id, b""),
            generation=held.order.generation_of(entry_id) or b"",
        )

    async def delete(self, request: pb.DeleteRequest, context: rpc.Context) -> pb.DeleteResponse:
        """Delete a conversation and its blobs; owners only."""
        held = await self.member(request.conversation, context)
        peer = rpc.caller(self._doorkeeper, context)
        if Role.OWNER not in held.log.membership.roles[peer]:
            raise NotAllowed("only an owner deletes a conversation")
        entries = await self._driver.delete(held.id)
        await self._blobs.delete(held.id)
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

    async def watch(
        self, request: pb.WatchRequest, context: rpc.Context
    ) -> AsyncIterator[pb.WatchResponse]:
        """Follow a conversation: a link whose other half we speak ourselves."""
        peer = rpc.caller(self._doorkeeper, context)
        self._check_link_quota(peer)
        conversation = _conversation(request.conversation)
        cursor = heads_from_pb(request.cursor)
        outbox = Outbox()
        link_id = self._driver.connect(peer, outbox.put)
        beat = asyncio.create_task(self._beat(link_id), name="watch beat")
        try:
            await self._driver.receive(link_id, Hello((VERSION,)), 0)
            # With the digest of the cursor itself, "nothing new" comes back as "equal".
            opening = Open(conversation, digest_of(sorted(cursor)), cursor, request.drafts)
            await self._driver.receive(link_id, opening, 0)
            granted = 0
            async for message in outbox:
                for response in self._watch_responses(message, peer):
                    granted += response.ByteSize()
                    yield response
                # gRPC's own flow control has taken it: the reader keeps up.
                limit = Credit(granted + limits.CREDIT_BYTES)
                await self._driver.receive(link_id, limit, 0)
        finally:
            beat.cancel()
            self._driver.disconnect(link_id)

    async def _beat(self, link_id: LinkId) -> None:
        """Beat for a watcher, whose only word was its request; gRPC sees to its being there."""
        while True:
            await asyncio.sleep(limits.HEARTBEAT_S)
            await self._driver.receive(link_id, Ping(0), 0)

    def _watch_responses(self, message: Message, peer: PublicKey) -> list[pb.WatchResponse]:
        match message:
            case Entries(conversation, _):
                held = self._driver.hub.shelf[conversation]
                entries = pb.WatchResponse(entries=entries_to_pb(message))
                return [entries, pb.WatchResponse(hint=_hint(held, peer))]
            case Opened(conversation, _, True):
                held = self._driver.hub.shelf[conversation]
                return [pb.WatchResponse(hint=_hint(held, peer))]
            case Draft():
                return [pb.WatchResponse(draft=draft_to_pb(message))]
            case Fault() as fault:
                raise status.error_of(fault)
            case Close(_, fault):
                raise status.error_of(fault or Fault.of(ConversationUnknown()))
            case _:
                return []


def _hint(held: Conversation, peer: PublicKey) -> pb.Hint:
    """Say what the caller's next append needs (spec/04-link §5)."""
    log, order = held.log, held.order
    tips = order.tips()
    tip = tips[-1] if tips else None
    parents = order.frontier(tip)
    named = [*parents, *([tip.id] if tip else [])]
    lanes = (lane for lane in log.lanes() if lane.author == peer)
    own = [log.position(i) for lane in lanes for i in log.lane_tips(lane)]
    return pb.Hint(
        tip=tip.id if tip else b"",
        parents=parents,
        basis=tip.id if tip else b"",
        lamport=1 + max(log.entries[i].header.lamport for i in named),
        own_heads=heads_to_pb(own),
        membership_heads=log.membership_heads(),
    )
