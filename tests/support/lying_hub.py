"""A hub for clients without a log that says whatever a test wants, on gRPC and loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
from google.rpc import status_pb2

from antiphon.conformance.writers import Writer
from antiphon.v1 import errors_pb2
from antiphon.v1 import sync_pb2 as pb
from antiphon.v1.sync_pb2_grpc import SyncServiceServicer, add_SyncServiceServicer_to_server
from replica.ids import Digest
from replica.io import now_ms
from replica.link.auth import Authenticator
from replica.log import (
    Entry,
    Generation,
    Kind,
    Seal,
    Text,
    body_digest,
    codec,
    entry_from_pb,
    entry_id,
    entry_to_pb,
    sign,
)

Event = pb.WatchResponse
Context = Any
"""A `grpc.aio.ServicerContext`."""


class LyingHub(SyncServiceServicer):
    """Answers as a hub would; a test replaces the attributes by what it wants to be said."""

    def __init__(self) -> None:
        """Name `host`, and answer each request of the client with "hi"."""
        self.me, self.host, self.eve = Writer("hub"), Writer("host"), Writer("eve")
        self.address = ""
        self.entries: list[Entry] = []
        """Those pushed, in the order of their arrival."""
        self.pushes = self.watches = self.open_watches = 0
        self.challenge: Callable[[pb.Challenge, pb.AuthenticateRequest], None] = lambda *_: None
        """Changes a challenge."""
        self.hosts: list[pb.LinkedHost] = [_linked(self.host)]
        self.outcomes: Callable[[list[Entry]], list[pb.PushOutcome]] = durable
        self.push_fails: status_pb2.Status | bytes | None = None
        """The trailer with which the next Push ends."""
        self.watch_fails: status_pb2.Status | bytes | None = None
        """The trailer with which each Watch ends."""
        self.events: Callable[[Entry], Iterable[Event]] = self.answered
        """Returns the events of a Watch behind a request."""
        self._authenticator = Authenticator(self.me.key, bytes(32))
        self._arrived = asyncio.Condition()

    async def Authenticate(self, request: pb.AuthenticateRequest, _: Context) -> Any:  # noqa: N802
        if request.client_signature:
            return pb.AuthenticateResponse(ticket=bytes(72))
        made = self._authenticator.challenge(
            request.client_key,  # type: ignore[arg-type]
            request.client_nonce,
            now_ms(),
        )
        challenge = pb.Challenge(
            hub_key=made.server_key,
            hub_nonce=made.server_nonce,
            expire_time_ms=made.expire_time_ms,
            hub_signature=made.signature,
        )
        self.challenge(challenge, request)
        return pb.AuthenticateResponse(challenge=challenge)

    async def Hosts(self, _: pb.HostsRequest, __: Context) -> pb.HostsResponse:  # noqa: N802
        return pb.HostsResponse(hosts=self.hosts)

    async def Push(self, request: pb.PushRequest, context: Context) -> pb.PushResponse:  # noqa: N802
        self.pushes += 1
        if (fails := self.push_fails) is not None:
            self.push_fails = None
            await _end(context, fails)
        pushed = [entry_from_pb(entry) for entry in request.entries]
        self.entries += [e for e in pushed if e.id not in {held.id for held in self.entries}]
        async with self._arrived:
            self._arrived.notify_all()
        return pb.PushResponse(outcomes=self.outcomes(pushed))

    async def Watch(self, _: pb.WatchRequest, context: Context) -> AsyncIterator[Event]:  # noqa: N802
        self.watches += 1
        if self.watch_fails is not None:
            await _end(context, self.watch_fails)
        told = 0
        self.open_watches += 1
        try:
            while True:
                async with self._arrived:
                    await self._arrived.wait_for(lambda: len(self.requests) > told)  # noqa: B023
                for event in self.events(self.requests[told]):
                    yield event
                told += 1
        finally:
            self.open_watches -= 1

    @property
    def requests(self) -> list[Entry]:
        """The requests pushed."""
        return [entry for entry in self.entries if entry.header.kind == Kind.REQUEST]

    def sealed(self, request: Entry) -> Entry:
        """Return a SEAL of the host behind a request."""
        some = Digest(bytes([1]) * 32)
        body = Seal(request.id, None, (request.id,), some, some, some, (1,), ())
        assert request.header.conversation is not None
        return self.host.write(
            request.header.conversation, body, parents=[request], listed=[request]
        )

    def generation(
        self, parent: Entry, text: str = "hi", author: Writer | None = None, detail: str = ""
    ) -> Entry:
        """Return a GENERATION behind a SEAL, or behind a request that it refuses."""
        assert parent.header.conversation is not None
        parts = (Text(text),) if text else ()
        body = Generation((1,), parts, len(text), 1, finish_detail=detail)
        return (author or self.host).write(parent.header.conversation, body, parents=[parent])

    def answered(self, request: Entry) -> Iterable[Event]:
        """Return the events of a true answer."""
        seal = self.sealed(request)
        made = self.generation(seal)
        return self.told([seal, made], answer(request, seal, made))

    def told(self, entries: Sequence[Entry], answered: Event) -> list[Event]:
        """Return the events that show entries and name an answer."""
        last = self.requests[-1]
        head = pb.LaneHead(
            author=last.header.author,
            epoch=last.header.epoch,
            track=last.header.track,
            seq=last.header.seq,
            id=last.id,
        )
        lamport = 1 + max(entry.header.lamport for entry in (*self.entries, *entries))
        hint = pb.Hint(parents=[(entries or [last])[-1].id], lamport=lamport, own_heads=[head])
        return [shown(*self.entries, *entries), answered, Event(hint=hint)]


def _linked(host: Writer) -> pb.LinkedHost:
    return pb.LinkedHost(info=pb.HostInfo(key=host.public), vouched=True)


async def _end(context: Context, trailer: status_pb2.Status | bytes) -> None:
    data = trailer if isinstance(trailer, bytes) else trailer.SerializeToString()
    context.set_trailing_metadata((("grpc-status-details-bin", data),))
    await context.abort(grpc.StatusCode.UNAVAILABLE, "words")


def durable(pushed: list[Entry]) -> list[pb.PushOutcome]:
    """Return the outcomes of entries that are durable."""
    return [pb.PushOutcome(id=entry.id, durable=True) for entry in pushed]


def refused(pushed: list[Entry], reason: str, detail: str, step: str) -> list[pb.PushOutcome]:
    """Return the outcomes of entries that are refused."""
    fault = errors_pb2.Fault(reason=reason, detail=detail, next_step=step)
    return [pb.PushOutcome(id=entry.id, fault=fault) for entry in pushed]


def shown(*entries: Entry) -> Event:
    """Return the event that shows entries."""
    return Event(entries=pb.Entries(entries=[entry_to_pb(entry) for entry in entries]))


def answer(request: Entry, seal: Entry | None, made: Entry) -> Event:
    """Return the event that names an answer; without a seal, a refusal."""
    sealed = b"" if seal is None else seal.id
    return Event(answered=pb.Answered(request=request.id, seal=sealed, generation=made.id))


def void(author: Writer, entry: Entry) -> Entry:
    """Return an entry with a body that does not parse, signed by its author."""
    body = bytes(16) + b"\x12\xff"
    header = replace(entry.header, body_digest=body_digest(body), body_bytes=len(body))
    data = codec.encode_header(header)
    return Entry(data, sign(data, author.key), body, entry_id(data), header)


@asynccontextmanager
async def lying_hub() -> AsyncIterator[LyingHub]:
    """Serve a hub on a free port of loopback."""
    hub, server = LyingHub(), grpc.aio.server()
    add_SyncServiceServicer_to_server(hub, server)
    hub.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield hub
    finally:
        await server.stop(None)
