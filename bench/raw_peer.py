"""A peer that keeps no rule: it sends any frame to a hub process, and reads as it likes."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import grpc

from antiphon.v1 import sync_pb2 as pb
from antiphon.v1.sync_pb2_grpc import SyncServiceStub
from bench.hostile_logs import Pen
from replica.io import rpc
from replica.limits import VERSION
from replica.link import Frame, Hello, Message, Ping, Pong, decode_frame


@dataclass(frozen=True)
class Figures:
    """The state of a timed hub; the hold is the longest since the last reading."""

    hold_ms: float
    step: str
    collection_ms: float
    cpu_s: float
    rss_bytes: int
    descriptors: int


@dataclass
class TimedHub:
    """A hub process whose event loop is timed."""

    address: str
    process: "subprocess.Popen[str]"
    ready_cpu_s: float = 0.0

    def figures(self) -> Figures:
        """Read its figures."""
        asked, answers = self.process.stdin, self.process.stdout
        assert asked is not None and answers is not None
        asked.write("\n")
        asked.flush()
        return Figures(**json.loads(answers.readline()))


@contextmanager
def timed_hub(folder: Path, **environment: str) -> Iterator[TimedHub]:
    """Start a timed hub over a folder; end it by its process."""
    command = [sys.executable, "-m", "bench.timed_hub", "--data-dir", str(folder)]
    with (folder.parent / f"{folder.name}.stderr").open("w") as errors:
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            text=True, env={**os.environ, **environment},
        )  # fmt: skip
    try:
        assert isinstance(process.stdout, IO) or process.stdout is not None
        ready = process.stdout.readline().split()
        if not ready:
            raise RuntimeError(f"the hub ended with {process.wait()} before it was ready")
        hub = TimedHub(ready[1], process)
        hub.ready_cpu_s = hub.figures().cpu_s
        yield hub
    finally:
        process.terminate()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


@dataclass
class RawPeer:
    """A key with its own connection and ticket."""

    pen: Pen
    address: str
    channel: Any = None
    metadata: tuple[tuple[str, bytes], ...] = ()
    sent_bytes: int = 0
    received_bytes: int = 0
    """Bytes of the frames that its links read."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Answers of the hub by name: types of messages, reasons of faults and errors."""

    async def enter(self) -> "RawPeer":
        """Connect and prove the key."""
        self.channel = grpc.aio.insecure_channel(self.address, options=rpc.CHANNEL_OPTIONS)
        stub: Any = SyncServiceStub(self.channel)

        async def call(request: pb.AuthenticateRequest) -> pb.AuthenticateResponse:
            response: pb.AuthenticateResponse = await rpc.typed(stub.Authenticate(request))
            return response

        _, ticket = await rpc.obtain_ticket(call, self.pen.key, None)
        self.metadata = ((rpc.TICKET_METADATA, ticket),)
        return self

    async def leave(self) -> None:
        """Disconnect."""
        await self.channel.close()

    def note(self, name: str) -> None:
        """Count an answer."""
        self.reasons[name] = self.reasons.get(name, 0) + 1

    async def call(self, path: str, data: bytes, timeout_s: float = 20.0) -> bytes | None:
        """Make a unary call of raw bytes; None if it is refused."""
        method = self.channel.unary_unary(f"/antiphon.v1.{path}")
        self.sent_bytes += len(data)
        try:
            answer: bytes = await method(data, metadata=self.metadata, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            self.note(f"{error.code().name}: {error.details()}"[:60])
            return None
        return answer

    async def link(self, *, follow: bool = False) -> "RawLink":
        """Open a link and greet."""
        stream = self.channel.stream_stream("/antiphon.v1.SyncService/Link")(metadata=self.metadata)
        link = RawLink(self, stream)
        await link.send(Hello((VERSION,), follow=follow))
        return link


@dataclass
class RawLink:
    """A link over which any bytes go."""

    peer: RawPeer
    stream: Any

    async def send(self, message: Message) -> None:
        """Send a message."""
        await self.write(Frame.of(message, "to_hub").data)

    async def write(self, data: bytes) -> None:
        """Send a frame of any bytes."""
        self.peer.sent_bytes += len(data)
        await self.stream.write(data)

    async def read(self, timeout_s: float = 20.0) -> Message | None:
        """Read one message; None at the end of the stream."""
        data = await asyncio.wait_for(self.stream.read(), timeout_s)
        if not isinstance(data, bytes):
            return None
        self.peer.received_bytes += len(data)
        message = decode_frame(data, "to_client")
        name = type(message).__name__
        self.peer.note(getattr(message, "reason", None) or name)
        return message

    async def drain(self, until: float) -> None:
        """Read and drop all messages until a time of the monotonic clock, or the end."""
        with suppress(asyncio.TimeoutError, grpc.aio.AioRpcError, asyncio.CancelledError):
            while (left := until - time.monotonic()) > 0:
                if await self.read(left) is None:
                    return

    async def ping(self) -> bool:
        """Wait until the hub has received all frames sent so far; False if it ended the link."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self.send(Ping(0))
            while (message := await self.read()) is not None:
                if isinstance(message, Pong):
                    return True
        return False

    def end(self) -> None:
        """Cancel the stream."""
        self.stream.cancel()
