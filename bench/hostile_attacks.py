"""The attacks of bench/abuse_hub.py: the log each begins with, its frames and its flood."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import cast

import grpc

from antiphon.v1 import blob_pb2, log_pb2
from antiphon.v1 import sync_pb2 as pb
from bench.hostile_logs import ANY, Pen, Talk, said
from bench.raw_peer import RawLink, RawPeer
from replica.ids import EntryId
from replica.link import Entries, Frame, Ids, Open
from replica.link import Message as LinkMessage
from replica.log import (
    Entry,
    Grant,
    Join,
    Member,
    Message,
    Revocation,
    Role,
    Speaker,
    Text,
    ToolResult,
)
from replica.log.body import Cut

READER, WRITER, HOST, NEIGHBOUR, OWNER, STRANGER = 2, 3, 4, 6, 1, 77
ROLES = {
    READER: Role.READER, WRITER: Role.WRITER, HOST: Role.HOST, NEIGHBOUR: Role.WRITER,
}  # fmt: skip


@dataclass
class Stage:
    """A conversation on a hub, with the pens of its members and the attacker's connection."""

    talk: Talk
    pens: dict[int, Pen]
    peer: RawPeer = field(default=cast(RawPeer, None))
    made: "Iterator[int]" = field(default_factory=count)

    @property
    def pen(self) -> Pen:
        """The attacker's pen."""
        return self.peer.pen


Frames = Callable[[Stage, int], Iterator[bytes]]
Grow = Callable[[Talk, dict[int, Pen], int], None]


def data_of(message: LinkMessage) -> bytes:
    """Return the bytes of a frame to a hub."""
    return Frame.of(message, "to_hub").data


def messages(talk: Talk, pens: dict[int, Pen], n: int) -> None:
    """Let the writer fill the conversation with n messages."""
    talk.messages(pens[WRITER], n)


async def flood_frames(attack: "Attack", stage: Stage, until: float) -> None:
    """Send frame after frame on one link, and drop the answers."""
    link = await stage.peer.link()
    reading = asyncio.create_task(link.drain(until))
    with suppress(TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
        async with asyncio.timeout_at(asyncio.get_running_loop().time() + until - time.monotonic()):
            for frame in attack.frames(stage, 1_000_000):
                await link.write(frame)
                await asyncio.sleep(0)
    await reading
    link.end()


@dataclass(frozen=True)
class Attack:
    """One attack."""

    name: str
    line: int
    """The line of the list of defects that it belongs to."""
    by: int
    frames: Frames
    grow: Grow = messages
    flooding: Callable[["Attack", Stage, float], Awaitable[None]] = flood_frames

    async def flood(self, stage: Stage, until: float) -> None:
        """Attack until a time of the monotonic clock."""
        await self.flooding(self, stage, until)


def grown(attack: Attack, n: int) -> Stage:
    """Build the log that an attack begins with."""
    talk = Talk()
    pens = {number: talk.member(number, role) for number, role in ROLES.items()}
    pens[OWNER], pens[STRANGER] = talk.owner, Pen(STRANGER)
    talk.messages(talk.owner, 3)
    attack.grow(talk, pens, n)
    return Stage(talk, pens)


# --- frames -------------------------------------------------------------------------------


def _same(make: Callable[[Stage], bytes]) -> Frames:
    def frames(stage: Stage, most: int) -> Iterator[bytes]:
        frame = make(stage)
        for _ in range(most):
            yield frame

    return frames


def _empty_entries(_stage: Stage) -> bytes:
    return pb.LinkRequest(entries=pb.Entries(entries=[{}] * 500_000)).SerializeToString()


def _bad_entries(stage: Stage) -> bytes:
    entry = log_pb2.Entry(header=b"\x0a\x20" + bytes(32), signature=bytes(64))
    raw = pb.Entries(conversation=stage.talk.id, entries=[entry] * 2_048)
    return pb.LinkRequest(entries=raw).SerializeToString()


def _entries(stage: Stage, entries: list[Entry]) -> bytes:
    return data_of(Entries(stage.talk.id, tuple(entries)))


def _fields(stage: Stage, most: int) -> Iterator[bytes]:
    """Write messages that have nearly as many fields as a body may have: 10,024 in 24 KB."""
    results = tuple(ToolResult("x", (Text("y"),) * 256) for _ in range(13))
    for _ in range(most):
        body = Message(Speaker.TOOL, results)
        yield _entries(stage, [stage.pen.write(body, stage.talk.genesis, epoch=6)])


def _joins(stage: Stage, most: int) -> Iterator[bytes]:
    for _ in range(most):
        number = 1_000 + next(stage.made)
        yield _entries(stage, [stage.pen.write(Join(), stage.talk.genesis, epoch=number)])


def _messages(stage: Stage, most: int) -> Iterator[bytes]:
    for _ in range(most):
        stage.talk.top = stage.pen.write(said("x"), stage.talk.top, epoch=5)
        yield _entries(stage, [stage.talk.top])


def _forks(stage: Stage, most: int) -> Iterator[bytes]:
    first = stage.pen.write(said(), stage.talk.genesis, epoch=8)
    yield _entries(stage, [first])
    for _ in range(most - 1):
        forked = stage.pen.write(said("y"), stage.talk.genesis, epoch=8, after=first)
        yield _entries(stage, [forked])


def _pending(stage: Stage, most: int) -> Iterator[bytes]:
    absent = stage.pen.write(said("absent"), stage.talk.genesis, epoch=9)
    for _ in range(most):
        body = said("p" * 60_000)
        yield _entries(stage, [stage.pen.write(body, absent, epoch=10 + next(stage.made))])


def _grants(stage: Stage, most: int) -> Iterator[bytes]:
    for _ in range(most):
        key = Pen(100_000 + next(stage.made)).public
        stage.talk.granted = stage.pen.write(Member(Grant(key, Role.READER)), stage.talk.granted)
        yield _entries(stage, [stage.talk.granted])


def _churn(stage: Stage, most: int) -> Iterator[bytes]:
    """Grant a key and revoke it, again and again."""
    for _ in range(most):
        key = Pen(200_000 + next(stage.made)).public
        grant = stage.pen.write(Member(Grant(key, Role.WRITER)), stage.talk.granted)
        stage.talk.granted = stage.pen.write(Member(Revocation(key, ())), grant)
        yield _entries(stage, [grant, stage.talk.granted])


def _cuts(stage: Stage, most: int) -> Iterator[bytes]:
    """Revoke the writer again and again, each time with one entry less."""
    lane = [e for e in stage.talk.entries if e.header.author == stage.pens[WRITER].public]
    for entry in reversed(lane[-most:]):
        h = entry.header
        body = Member(Revocation(h.author, (Cut(h.epoch, h.track, h.seq, entry.id),)))
        stage.talk.granted = stage.pen.write(body, stage.talk.granted, listed=[entry])
        yield _entries(stage, [stage.talk.granted])


def _void_seals(stage: Stage, most: int) -> Iterator[bytes]:
    talk = stage.talk
    for number in range(most):
        if number % 8 == 0:
            request = talk.request(stage.pens[HOST])
            yield _entries(stage, [request])
        yield _entries(stage, [talk.seal(stage.pen, request, [request])])


def _ids_pieces(stage: Stage, most: int) -> Iterator[bytes]:
    number = count()
    yield data_of(Open(stage.talk.id, ANY))
    for _ in range(most - 1):
        ids = tuple(EntryId(next(number).to_bytes(32, "big")) for _ in range(8_192))
        yield data_of(Ids(stage.talk.id, ids, more=True))


# --- floods of another shape -------------------------------------------------------------------


async def _fetch(_attack: Attack, stage: Stage, until: float) -> None:
    h = next(e.header for e in stage.talk.entries if e.header.author == stage.pens[WRITER].public)
    ranges = [pb.LaneRange(author=h.author, epoch=h.epoch, track=h.track, seq_start=0)]
    data = pb.FetchRequest(conversation=stage.talk.id, ranges=ranges).SerializeToString()
    fetch = stage.peer.channel.unary_stream("/antiphon.v1.SyncService/Fetch")

    async def one() -> None:
        while time.monotonic() < until:
            stage.peer.sent_bytes += len(data)
            call = fetch(data, metadata=stage.peer.metadata, timeout=20)
            try:
                async for _ in call:
                    if time.monotonic() > until:
                        break
            except grpc.aio.AioRpcError as error:
                stage.peer.note(error.code().name)
                await asyncio.sleep(0.01)
            call.cancel()

    await asyncio.gather(*(one() for _ in range(8)))


async def _unread(attack: Attack, stage: Stage, until: float) -> None:
    """Ask for the whole log on many links, and read nothing."""
    links: list[RawLink] = []
    with suppress(grpc.aio.AioRpcError):
        for _ in range(64):
            link = await stage.peer.link()
            for frame in attack.frames(stage, 1):
                await link.write(frame)
            links.append(link)
    await asyncio.sleep(max(0.0, until - time.monotonic()))
    for link in links:
        link.end()


async def _watches(_attack: Attack, stage: Stage, until: float) -> None:
    watch = stage.peer.channel.unary_stream("/antiphon.v1.SyncService/Watch")
    data = pb.WatchRequest(conversation=stage.talk.id).SerializeToString()
    calls = [watch(data, metadata=stage.peer.metadata) for _ in range(64)]

    async def drain(call: "grpc.aio.UnaryStreamCall[bytes, bytes]") -> None:
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            async for _ in call:
                pass

    tasks = [asyncio.create_task(drain(call)) for call in calls]
    await asyncio.sleep(max(0.0, until - time.monotonic()))
    for call in calls:
        call.cancel()
    await asyncio.gather(*tasks)


async def _blobs(_attack: Attack, stage: Stage, until: float) -> None:
    """Write small blobs, one after the other, on 16 calls."""
    write = stage.peer.channel.stream_unary("/antiphon.v1.BlobService/Write")

    async def one() -> None:
        while time.monotonic() < until:
            content = next(stage.made).to_bytes(8, "big")
            digest = hashlib.sha256(content).digest()
            request = blob_pb2.WriteRequest(
                conversation=stage.talk.id, digest=digest, size_bytes=8, data=content
            ).SerializeToString()

            async def requests(request: bytes = request):  # type: ignore[no-untyped-def]
                yield request

            stage.peer.sent_bytes += len(request)
            try:
                await write(requests(), metadata=stage.peer.metadata, timeout=20)
                stage.peer.note("written")
            except grpc.aio.AioRpcError as error:
                stage.peer.note(f"{error.code().name}")
                await asyncio.sleep(0.02)

    await asyncio.gather(*(one() for _ in range(16)))


def _nothing(_stage: Stage, _most: int) -> Iterator[bytes]:
    return iter(())


def _open_all(stage: Stage) -> bytes:
    return data_of(Open(stage.talk.id, ANY, ()))


def _lanes(talk: Talk, pens: dict[int, Pen], n: int) -> None:
    for number in range(0, min(n, 10_000), 1_000):
        pen = talk.member(300 + number, Role.WRITER)
        talk.lanes(pen, min(1_000, n), Join())
    talk.messages(pens[WRITER], 10)


def _turns(talk: Talk, pens: dict[int, Pen], n: int) -> None:
    host, seal, listed = pens[HOST], None, []
    for _ in range(min(n, 2_000) // 3):
        request = talk.request(host, basis=seal)
        seal = talk.seal(host, request, [*listed, request], prev=seal)
        listed = [talk.answer(host, seal)]
    talk.messages(pens[WRITER], n - min(n, 2_000))


_DIGEST = _same(lambda stage: data_of(Open(stage.talk.id, ANY)))
_ALL = _same(_open_all)

ATTACKS = (
    Attack("joins of a reader", 7, READER, _joins),
    Attack("open, many lanes", 7, READER, _DIGEST, _lanes),
    Attack("append, many lanes", 13, WRITER, _messages, _lanes),
    Attack("empty entries", 8, READER, _same(_empty_entries)),
    Attack("entries that are refused", 8, READER, _same(_bad_entries)),
    Attack("bodies of many fields", 8, WRITER, _fields),
    Attack("open without heads", 9, READER, _ALL),
    Attack("open with a digest", 9, READER, _DIGEST),
    Attack("empty ids", 9, READER, _same(lambda stage: data_of(Ids(stage.talk.id, ())))),
    Attack("one message a frame", 9, WRITER, _messages),
    Attack("a forked lane", 9, WRITER, _forks),
    Attack("grants", 10, OWNER, _grants),
    Attack("grant and revoke", 10, OWNER, _churn),
    Attack("cuts of a long lane", 10, OWNER, _cuts),
    Attack("grant and revoke, turns", 10, OWNER, _churn, _turns),
    Attack("void seals", 10, HOST, _void_seals),
    Attack("pending entries", 12, WRITER, _pending),
    Attack("ids in pieces", 12, READER, _ids_pieces),
    Attack("fetch of a lane", 9, READER, _nothing, flooding=_fetch),
    Attack("answers never read", 12, READER, _ALL, flooding=_unread),
    Attack("64 watches", 9, READER, _nothing, flooding=_watches),
    Attack("small blobs", 12, WRITER, _nothing, flooding=_blobs),
)
