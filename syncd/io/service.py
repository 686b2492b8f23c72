"""SyncService over grpc.aio (spec/04-link).

It parses requests, calls the pure modules of syncd/ and encodes their results
(DECISIONS D83).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Container
from functools import partial
from typing import assert_never

import grpc
import structlog

from antiphon.v1 import sync_pb2 as pb
from replica import limits
from replica.conversation import Conversation, Draft
from replica.errors import AntiphonError, EntryRefused
from replica.ids import ID_BYTES, EntryId, PublicKey, short
from replica.io import CertificateFile, rpc, status
from replica.link import (
    NO_CERTIFICATE,
    STEP_ENTRIES,
    Authenticator,
    Close,
    Entries,
    Fault,
    Frame,
    LinkedHost,
    Listing,
    Message,
    Open,
    Pong,
    Steps,
    decode_steps,
    draft_to_pb,
    entries_steps,
    fault_to_pb,
    heads_to_pb,
    linked_host_to_pb,
)
from replica.log import entry_id, entry_to_pb
from syncd.calls import Outcomes, pushed, queries
from syncd.io.driver import HubDriver
from syncd.io.gate import Gate
from syncd.io.outbox import Encode, Item, Outbox
from syncd.io.requests import (
    conversation_id,
    cursor_steps,
    entry_id_in,
    lane_range,
    pushed_steps,
)
from syncd.links import Answered, Hint, LinkId, Outgoing, OwnHead, delivered, watch

log = structlog.get_logger()

_ENTRIES_TAG = bytes([pb.WatchResponse.ENTRIES_FIELD_NUMBER << 3 | 2])
"""The first byte of a response of entries; a frame of them begins with one byte, too."""


class SyncService:
    """The calls of SyncService."""

    def __init__(
        self,
        driver: HubDriver,
        authenticator: Authenticator,
        gate: Gate,
        certificate: CertificateFile | None = None,
    ) -> None:
        """Serve `driver`'s hub to callers that `gate` admits, with TLS or without.

        `authenticator` makes their tickets; the `certificate` is the one that callers over
        TLS see.
        """
        self._driver = driver
        self._authenticator = authenticator
        self._gate = gate
        self._certificate = certificate

    def handlers(self) -> rpc.Handlers:
        """Return the byte-level handlers, by method."""
        refused, counted = self._gate.refuse, self._gate.counted
        frame = limits.FRAME_BYTES_MAX
        return {
            "Authenticate": rpc.unary(
                pb.AuthenticateRequest, self.authenticate, refused, self._gate.keyless
            ),
            "Link": grpc.stream_stream_rpc_method_handler(self.link),
            "Push": rpc.unary(pb.PushRequest, self.push, refused, counted, frame),
            "Watch": rpc.writing_stream(
                pb.WatchRequest, self.watch, refused, self._gate.counted_stream, frame
            ),
            "Fetch": rpc.server_stream(
                pb.FetchRequest, self.fetch, refused, self._gate.transfer, frame
            ),
            "Hosts": rpc.unary(pb.HostsRequest, self.hosts, refused, counted),
            "Resolve": rpc.unary(pb.ResolveRequest, self.resolve, refused, counted),
            "Delete": rpc.unary(pb.DeleteRequest, self.delete, refused, counted),
        }

    async def authenticate(
        self, request: pb.AuthenticateRequest, context: rpc.Context
    ) -> pb.AuthenticateResponse:
        """Prove possession of a key, which also extends its streams on this connection."""
        digest = NO_CERTIFICATE
        if self._certificate is not None and rpc.has_tls(context):
            digest = self._certificate.current.digest
        response = rpc.answer_authenticate(self._authenticator, request, digest)
        if response.ticket:
            self._driver.renew(PublicKey(request.client_key), context.peer())
        return response

    # --- Link -------------------------------------------------------------------

    async def link(self, frames: AsyncIterator[bytes], context: rpc.Context) -> None:
        """Run one link until either side ends it."""
        async with rpc.Answering(context, self._gate.refuse):
            peer = self._gate.key_of(context)
            self._driver.pacer.note_stream(peer)
            await self._run_link(peer, frames, context)

    async def _run_link(
        self, peer: PublicKey, frames: AsyncIterator[bytes], context: rpc.Context
    ) -> None:
        def drop_link() -> None:
            self._driver.disconnect(link_id)
            reader.cancel()

        outbox = Outbox(drop_link, lambda size: self._driver.memory.note_queued(link_id, size))
        with self._driver.hold(peer, context.peer(), outbox.end, outbox.drop):
            link_id = self._driver.connect(peer, outbox.put, drop=outbox.drop)
            reading = self._read(link_id, peer, frames, outbox)
            reader = asyncio.create_task(reading, name="link reader")
            try:
                encode = self._counted(partial(self._frame, link_id, peer))
                await outbox.write_all(context, encode, pace=partial(self._pace, peer))
            finally:
                drop_link()
                outbox.close()

    async def _pace(self, peer: PublicKey, is_short: bool) -> None:
        pacer = self._driver.pacer
        await (pacer.short_step(peer) if is_short else pacer.step(peer))

    def _frame(self, link_id: LinkId, peer: PublicKey, item: Item) -> bytes | None:
        """Return the frame for an item; a Close in place of one that is the peer's no more."""
        if not isinstance(item, Frame):
            return None
        message = self._delivered(peer, item.message)
        if message is item.message:
            return item.data
        if isinstance(item.message, Listing):
            left = message.items if isinstance(message, Listing) else ()
            left_out = {one.conversation for one in item.message.items}
            left_out.difference_update(one.conversation for one in left)
            self._driver.hub.connected.note_unlisted(link_id, left_out)
        if not isinstance(message, Close | Listing):
            return None
        return Frame.of(message, "to_client").data

    def _delivered(self, peer: PublicKey, message: Outgoing) -> Outgoing | None:
        hub = self._driver.hub
        return delivered(hub.shelf, hub.deleted, peer, message)

    async def _read(
        self, link_id: LinkId, peer: PublicKey, frames: AsyncIterator[bytes], outbox: Outbox
    ) -> None:
        """Read frames until the peer ends the stream, pausing while too much is queued for it."""
        pacer = self._driver.pacer
        try:
            async for data in frames:
                await outbox.drained()
                message = await pacer.in_steps(decode_steps(data, "to_hub"), peer)
                await self._driver.receive(link_id, message, len(data))
        except AntiphonError as error:
            outbox.end(error)
        except Exception:
            log.exception("a link's reader failed")
            outbox.end(rpc.bug())
        else:
            outbox.put(None)

    def _counted(self, encode: Encode) -> Encode:
        """Return an encoder that counts what it encodes."""

        def encode_and_count(item: Item) -> bytes | None:
            data = encode(item)
            if data is not None:
                message = item.message if isinstance(item, Frame) else None
                self._driver.counters.note_written(message, len(data))
            return data

        return encode_and_count

    # --- Push, Hosts, Resolve, Fetch -------------------------------------------------------

    async def push(self, request: pb.PushRequest, context: rpc.Context) -> pb.PushResponse:
        """Append entries; the response follows once all admitted ones are durable."""
        peer = self._gate.key_of(context)
        self._driver.counters.bytes_in += request.ByteSize()
        try:
            message = await self._driver.pacer.in_steps(pushed_steps(request), peer)
        except EntryRefused:
            self._driver.throttle.call(peer, entries=len(request.entries))
            outcomes = await self._driver.pacer.in_steps(_unreadable_steps(request), peer)
            return pb.PushResponse(outcomes=outcomes)

        def answer(outcomes: Outcomes) -> pb.PushResponse:
            held = self._driver.hub.shelf.get(message.conversation)
            ids = message.ids
            if message.refused:  # which come last there
                ids = tuple(entry_id(item.header) for item in request.entries)
            return pb.PushResponse(
                outcomes=[_outcome(i, outcomes[i], held, self._linked) for i in ids]
            )

        return await self._driver.push(peer, message, answer)

    def _linked(self) -> set[PublicKey]:
        return {host.key for host in self._hosts()}

    async def hosts(self, _request: pb.HostsRequest, context: rpc.Context) -> pb.HostsResponse:
        """Name the linked model hosts, those the hub vouches for first and marked (LINK-83)."""
        self._driver.throttle.call(self._gate.key_of(context))
        return pb.HostsResponse(hosts=map(linked_host_to_pb, self._hosts()))

    def _hosts(self) -> tuple[LinkedHost, ...]:
        hub = self._driver.hub
        return hub.connected.hosts(hub.policy.vouches_for)

    async def resolve(self, request: pb.ResolveRequest, context: rpc.Context) -> pb.ResolveResponse:
        """Return the fate of an entry; of a request, also its seal and generation."""
        peer = self._gate.key_of(context)
        held = await self._driver.permitted(peer, conversation_id(request.conversation))
        fate = queries.fate_of(held, entry_id_in(request.id, "id"))
        if isinstance(fate, queries.Held | queries.Uncovered):
            await self._driver.performer.written(held.id)
        return _fate_to_pb(fate)

    async def delete(self, request: pb.DeleteRequest, context: rpc.Context) -> pb.DeleteResponse:
        """Delete a conversation and its blobs; owners only."""
        peer = self._gate.key_of(context)
        conversation = conversation_id(request.conversation)
        entries = await self._driver.delete(peer, conversation)
        log.info("conversation deleted", conversation=short(conversation), key=short(peer))
        return pb.DeleteResponse(entries=entries)

    async def fetch(
        self, request: pb.FetchRequest, context: rpc.Context
    ) -> AsyncIterator[pb.FetchResponse]:
        """Send entries by id or lane range."""
        peer = self._gate.key_of(context)
        conversation = conversation_id(request.conversation)
        # In memory, where it counts, until it is read.
        with self._driver.transfers.count(peer) as check, self._driver.keep(conversation):
            held = await self._driver.permitted(peer, conversation)
            ids = [entry_id_in(one, "ids") for one in request.ids]
            ranges = [lane_range(one) for one in request.ranges]
            responses = queries.fetch(held, ids, ranges, headers_only=request.headers_only)
            await self._driver.performer.written(held.id)
            while True:
                await self._driver.pacer.step(peer)  # the entries are read in it, too
                await self._driver.folds.ended(held.id)  # some may be admitted and not stored yet
                response = next(responses, queries.END)
                if response is queries.END:
                    return
                check()
                if not isinstance(response, queries.Fetched):
                    continue  # a pause, after many entries that were passed over
                # A fork of a lane may have come since, and is read with it (D36).
                await self._driver.performer.written(held.id)
                await self._driver.permitted(peer, held.id)  # LINK-16: each is a delivery
                size = sum(entry.size_bytes for entry in response.entries)
                self._driver.throttle.charge(peer, held.id, sent_bytes=size)
                yield pb.FetchResponse(
                    entries=map(entry_to_pb, response.entries), absent=response.absent
                )

    # --- Watch ------------------------------------------------------------------------

    async def watch(self, request: pb.WatchRequest, context: rpc.Context) -> None:
        """Send a conversation's entries and drafts as they arrive, through a link of its own."""
        peer = self._gate.key_of(context)
        pacer, taken = self._driver.pacer, watch.Taken()
        pace = partial(pacer.step, peer)
        with self._driver.calls.count(peer):  # as no stream yet: its time runs from then on
            opening = await pacer.in_steps(_opening_steps(request), peer)

        def drop_link() -> None:
            self._driver.disconnect(link_id)
            heartbeats.cancel()

        async def grant(item: Item) -> None:
            credit = taken.note(item) if isinstance(item, Frame) else None
            if credit is not None:
                await pace()
                await self._driver.receive(link_id, credit, 0)

        self._driver.throttle.check(peer, opening.conversation)
        outbox = Outbox(drop_link, lambda size: self._driver.memory.note_queued(link_id, size))
        with self._driver.hold(peer, context.peer(), outbox.end, outbox.drop):
            link_id = self._driver.connect(peer, outbox.put, watches=True, drop=outbox.drop)
            heartbeats = asyncio.create_task(
                self._send_heartbeats(link_id), name="watch heartbeats"
            )
            try:
                await self._driver.receive(link_id, watch.GREETING, 0)
                await self._driver.receive(link_id, opening, 0)
                encode = self._counted(partial(self._watch_response, peer))
                await outbox.write_all(context, encode, grant, pace=partial(self._pace, peer))
            finally:
                drop_link()
                outbox.close()

    def _watch_response(self, peer: PublicKey, item: Item) -> bytes | None:
        message = item.message if isinstance(item, Frame) else item
        found = self._delivered(peer, message)
        if found is None:
            return None
        if isinstance(item, Frame) and isinstance(found, Entries) and found is message:
            return entries_response(item)
        return _watch_response(found)

    async def _send_heartbeats(self, link_id: LinkId) -> None:
        """Send heartbeats in a watcher's place; the hub's answers are the beats it gets."""
        while True:
            await asyncio.sleep(limits.HEARTBEAT_S)
            await self._driver.receive(link_id, watch.HEARTBEAT, 0)


def _outcome(
    entry: EntryId,
    fault: Fault | None,
    held: Conversation | None,
    linked: Callable[[], Container[PublicKey]],
) -> pb.PushOutcome:
    if fault is not None:
        return pb.PushOutcome(id=entry, fault=fault_to_pb(pushed.for_push(fault)))
    warned = pushed.warning_about(held, entry, linked) if held is not None else None
    warning = fault_to_pb(Fault.of(warned, entry=entry)) if warned is not None else None
    return pb.PushOutcome(id=entry, durable=True, warning=warning)


def _unreadable_steps(request: pb.PushRequest) -> Steps[list[pb.PushOutcome]]:
    """Make the outcomes of a Push of which no entry can be read and nothing names the log."""
    named = pb.PushRequest(conversation=bytes(ID_BYTES), entries=request.entries)
    outcomes: list[pb.PushOutcome] = []
    for entry, error in (yield from entries_steps(named)).refused:
        if len(outcomes) % STEP_ENTRIES == 0:
            yield
        fault = fault_to_pb(Fault.of(error, entry=entry))
        outcomes.append(pb.PushOutcome(id=fault.entry, fault=fault))
    return outcomes


def _fate_to_pb(fate: queries.Fate) -> pb.ResolveResponse:
    match fate:
        case queries.Unknown():
            return pb.ResolveResponse(fate=pb.FATE_UNKNOWN)
        case queries.Pending(missing):
            return pb.ResolveResponse(fate=pb.FATE_PENDING, missing=missing)
        case queries.Uncovered():
            return pb.ResolveResponse(fate=pb.FATE_UNCOVERED)
        case queries.Held(seal, generation):
            return pb.ResolveResponse(
                fate=pb.FATE_DURABLE, seal=seal or b"", generation=generation or b""
            )
        case _:
            assert_never(fate)


def _opening_steps(request: pb.WatchRequest) -> Steps[Open]:
    conversation = conversation_id(request.conversation)
    cursor = yield from cursor_steps(request.cursor)
    return (yield from watch.opening_steps(conversation, cursor, drafts=request.drafts))


def entries_response(frame: Frame) -> bytes:
    """Return the response that a frame of entries becomes: the same bytes but for their tag."""
    return _ENTRIES_TAG + frame.data[1:]


def _watch_response(message: Message | Hint | Answered) -> bytes | None:
    """Return the response for an item, None if it has none; raise the error that ends a Watch."""
    end = watch.end_of(message)
    if end is not None:
        raise status.error_of(end)
    match message:
        case Entries():
            return entries_response(Frame.of(message, "to_client"))
        case Hint():
            return pb.WatchResponse(hint=_hint_to_pb(message)).SerializeToString()
        case Draft():
            return pb.WatchResponse(draft=draft_to_pb(message)).SerializeToString()
        case Answered(_, request, seal, generation):
            found = pb.Answered(request=request, seal=seal or b"", generation=generation)
            return pb.WatchResponse(answered=found).SerializeToString()
        case Pong():
            # The hub's answer to the heartbeat that it makes for the watcher (LINK-81).
            return pb.WatchResponse(beat=pb.Beat()).SerializeToString()
        case _:
            return None


def _hint_to_pb(hint: Hint) -> pb.Hint:
    return pb.Hint(
        tip=hint.tip or b"",
        parents=hint.parents,
        basis=hint.tip or b"",
        lamport=hint.lamport,
        own_heads=map(_own_head_to_pb, hint.own_heads),
        membership_heads=hint.membership_heads,
        open_request=hint.open_request or b"",
    )


def _own_head_to_pb(head: OwnHead) -> pb.LaneHead:
    (raw,) = heads_to_pb([head.position])
    raw.lamport = head.lamport
    return raw
