"""A hub whose core is that of syncd, and whose stream a case may change in both directions."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.io.calls import challenge_of
from antiphon.v1 import blob_pb2
from antiphon.v1 import sync_pb2 as pb
from replica.errors import AntiphonError
from replica.ids import ConversationId, PublicKey
from replica.io import rpc
from replica.link import Authenticator, Entries, Frame, Message, decode_frame, sign_challenge
from replica.log import Entry
from syncd.hub import Hub
from syncd.links import HubEffects, LinkId
from syncd.policy import Policy

PIECE_BYTES = 256 * 1024
"""Bytes of a blob in one response."""


@dataclass(slots=True)
class Seen:
    """A frame of the client."""

    message: Message
    frame_bytes: int
    at: float
    """Seconds on the monotonic clock."""


@dataclass(slots=True)
class Live:
    """One stream of the client."""

    link_id: LinkId
    queue: "asyncio.Queue[bytes | AntiphonError | None]"
    frames: list[Seen] = field(default_factory=list)
    sent: int = 0
    """How many frames the hub has sent, those of barriers apart."""
    malformed: str = ""
    has_ended: bool = False

    def send(self, data: bytes) -> None:
        """Send a frame."""
        self.sent += 1
        self.queue.put_nowait(data)


class ScriptedHub:
    """Serves one client on loopback; right unless a case changes it."""

    def __init__(self) -> None:
        """Start with a new key and no conversation."""
        self.links: list[Live] = []
        self.proofs = 0
        """Second steps of Authenticate, each with a signature of the client."""
        self.outgoing: Callable[[Message], Iterable[Message]] = lambda message: (message,)
        """The messages sent in place of one of the core."""
        self.passes: Callable[[Message], bool] = lambda _message: True
        """Whether a message of the client reaches the core."""
        self.challenge: Callable[[pb.AuthenticateResponse], None] = lambda _response: None
        """Changes the answer to the first step of Authenticate, which is signed afterwards.

        A signature that it changes stays.
        """
        self.blobs: dict[bytes, bytes] = {}
        """The bytes served for a digest, right or not."""
        self.news = asyncio.Event()
        self.become()
        self.core = Hub(self.key, Policy())

    def become(self) -> None:
        """Take a new key."""
        self._key = Ed25519PrivateKey.generate()
        self._authenticator = Authenticator(self._key, os.urandom(32))

    @property
    def key(self) -> PublicKey:
        """The hub's key."""
        return self._authenticator.public

    async def start(self) -> str:
        """Listen; return the address."""
        self._server = grpc.aio.server(options=rpc.SERVER_OPTIONS)
        handlers = {
            "Authenticate": rpc.unary(pb.AuthenticateRequest, self._authenticate),
            "Link": grpc.stream_stream_rpc_method_handler(self._link),
        }
        service = grpc.method_handlers_generic_handler("antiphon.v1.SyncService", handlers)
        blobs = grpc.method_handlers_generic_handler(
            "antiphon.v1.BlobService",
            {"Read": rpc.server_stream(blob_pb2.ReadRequest, self._read_blob)},
        )
        self._server.add_generic_rpc_handlers((service, blobs))
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    async def stop(self) -> None:
        """End all streams."""
        await self._server.stop(None)

    # --- inputs of a case ---------------------------------------------------------------

    def lose_all(self) -> None:
        """Begin with an empty store, as a hub that was lost; running links end."""
        self.end()
        self.core = Hub(self.key, Policy())

    def hold(self, conversation: ConversationId, entries: Iterable[Entry]) -> None:
        """Hold entries, as from the store."""
        self._perform(self.core.load(conversation, list(entries)))

    def bring(self, author: PublicKey, conversation: ConversationId, *entries: Entry) -> None:
        """Let another member append entries."""
        now, message = time.monotonic(), Entries(conversation, entries)
        effects, faults = self.core.begin_push(author).whole(message, now)
        assert not any(faults.values()), f"the kit's entries are right: {faults}"
        self._perform(effects)

    def send(self, *messages: Message) -> None:
        """Send messages to the client, whatever the core says."""
        for message in messages:
            self.send_bytes(Frame.of(message, "to_client").data)

    def send_bytes(self, data: bytes) -> None:
        """Send a frame."""
        self.links[-1].send(data)

    def end(self, error: AntiphonError | None = None) -> None:
        """End the client's stream, with a status or without one."""
        if self.links:
            self.links[-1].queue.put_nowait(error)

    @property
    def frames(self) -> list[Seen]:
        """The client's frames on its last stream."""
        return self.links[-1].frames if self.links else []

    # --- serving ----------------------------------------------------------------------

    async def _authenticate(
        self, request: pb.AuthenticateRequest, _context: rpc.Context
    ) -> pb.AuthenticateResponse:
        self.proofs += request.HasField("challenge")
        response = rpc.answer_authenticate(self._authenticator, request)
        if not request.HasField("challenge"):
            signature = response.challenge.hub_signature
            self.challenge(response)
            if response.challenge.hub_signature == signature:  # what a case changed is signed
                self._sign(request, response.challenge)
        return response

    def _sign(self, request: pb.AuthenticateRequest, challenge: pb.Challenge) -> None:
        peer, nonce = PublicKey(request.client_key), request.client_nonce
        signed = sign_challenge(self._key, peer, nonce, challenge_of(challenge))
        challenge.hub_signature = signed.signature

    async def _read_blob(
        self, request: blob_pb2.ReadRequest, _context: rpc.Context
    ) -> AsyncIterator[blob_pb2.ReadResponse]:
        data = self.blobs[request.digest]
        for at in range(request.offset, len(data), PIECE_BYTES):
            yield blob_pb2.ReadResponse(data=data[at : at + PIECE_BYTES])

    async def _link(self, frames: AsyncIterator[bytes], context: rpc.Context) -> None:
        async with rpc.Answering(context):
            peer = rpc.caller(self._authenticator, context)
            core, now = self.core, time.monotonic()
            live = Live(core.connect(peer, now), asyncio.Queue())
            self.links.append(live)
            self.news.set()
            reader = asyncio.create_task(self._read(live, core, frames))
            try:
                while (item := await live.queue.get()) is not None:
                    if isinstance(item, AntiphonError):
                        raise item
                    await context.write(item)
            finally:
                live.has_ended = True
                reader.cancel()
                core.disconnect(live.link_id)
                self.news.set()

    async def _read(self, live: Live, core: Hub, frames: AsyncIterator[bytes]) -> None:
        try:
            async for data in frames:
                message = decode_frame(data, "to_hub")
                live.frames.append(Seen(message, len(data), time.monotonic()))
                self.news.set()
                if self.passes(message):
                    now = time.monotonic()
                    self._perform(core.receive(live.link_id, message, now, len(data)))
        except AntiphonError as error:
            live.malformed = f"{error.reason}: {error.detail}"
        live.queue.put_nowait(None)
        self.news.set()

    def _perform(self, effects: HubEffects) -> None:
        by_id: dict[Any, Live] = {live.link_id: live for live in self.links[-1:]}
        for link_id, frame in effects.send:
            if link_id in by_id:
                for message in self.outgoing(frame.message):
                    by_id[link_id].send(Frame.of(message, "to_client").data)
        for link_id in effects.closed:
            if link_id in by_id:
                by_id[link_id].queue.put_nowait(None)
