"""The server of a shared store, in the process that holds its lock (DECISIONS D340).

Requests of one process are performed in order, one after the other, and answered in that
order. What became durable is announced to all of them, before the answer of whoever wrote it.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from replica.errors import AntiphonError, StoreError
from replica.ids import short
from replica.io.local.local_frames import (
    VERSIONS,
    LocalFrame,
    SharingUnsupported,
    error_fields,
    read_frame,
)
from replica.io.local.local_socket import may_share, peer_user
from replica.io.process import get_logger
from replica.refusals import FrameMalformed, StoreLocked

log = get_logger()

OUTBOX_BYTES_MAX = 64 * 1024 * 1024
"""Unread bytes of a process at which its connection ends; it reads the store again then."""
GREETING_S = 10.0
"""Seconds that a process has for its first frame."""
ACCEPT_PAUSE_S = 0.1
"""Seconds until the next try to accept a process, where the system lacks descriptors."""
PROCESSES_MAX = 256
"""Processes that share one store."""

Perform = Callable[[LocalFrame], Awaitable[LocalFrame | None]]
"""Performs a request; None for one without an answer. Raises AntiphonError."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a process says of itself."""

    key: str
    """The replica's public key, hex."""
    label: str | None
    process: int

    @classmethod
    def of(cls, key: bytes, label: str | None) -> "Identity":
        """Return the identity of this process."""
        return cls(key.hex(), label, os.getpid())


class LocalServer:
    """Serves the other processes on a bound socket until `stop`."""

    def __init__(self, identity: Identity, perform: Perform) -> None:
        """Answer requests with `perform`."""
        self._identity = identity
        self._perform = perform
        self._listener: socket.socket | None = None
        self._joined: set[asyncio.Task[None]] = set()
        self._streams: dict[asyncio.StreamReader, asyncio.StreamWriter] = {}
        self._greeted: set[asyncio.StreamWriter] = set()
        self._is_stopping = False

    def start(self, listener: socket.socket) -> None:
        """Serve on a listening socket, which `stop` closes."""
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._accept)

    async def stop(self) -> None:
        """Finish the requests in progress, and end all connections; the rest is not read.

        Whoever is being accepted is not greeted, and joins the process that comes next. A stop
        that was cancelled may be called again.
        """
        self._is_stopping = True
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for reader, writer in self._streams.items():
            transport = writer.transport
            assert isinstance(transport, asyncio.ReadTransport), "of a stream"
            transport.pause_reading()
            reader.feed_eof()
        await asyncio.gather(*self._joined, return_exceptions=True)

    def announce(self, frame: LocalFrame) -> None:
        """Send a frame to all processes."""
        if not self._greeted:
            return
        data = frame.encode()
        for writer in tuple(self._greeted):
            self._send(writer, data)

    @property
    def is_used(self) -> bool:
        """Say whether another process is connected."""
        return bool(self._greeted)

    def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        if writer.transport.get_write_buffer_size() > OUTBOX_BYTES_MAX:
            log.warning("a process that does not read was disconnected")
            writer.transport.abort()

    def _accept(self) -> None:
        """Accept a process; `stop` knows of it from here on, unlike with asyncio's server."""
        assert self._listener is not None, "started"
        try:
            connected, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # it is gone
        except OSError as error:
            # Without descriptors or memory: it waits in the queue, and the loop has other work.
            log.warning("could not accept a process", detail=str(error))
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener)
            loop.call_later(ACCEPT_PAUSE_S, self._accept_again)
            return
        connected.setblocking(False)
        task = asyncio.create_task(self._converse(connected), name="process on the store")
        self._joined.add(task)
        task.add_done_callback(self._joined.discard)

    def _accept_again(self) -> None:
        if self._listener is not None and not self._is_stopping:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    async def _converse(self, connected: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connected)
        if self._is_stopping:
            writer.close()
            return
        self._streams[reader] = writer
        try:
            if await self._greet(reader, writer):
                await self._serve(reader, writer)
        except (FrameMalformed, TimeoutError) as error:
            log.warning("a process broke the framing", detail=str(error))
        finally:
            self._greeted.discard(writer)
            del self._streams[reader]
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Check user, version and key of a process, and answer it; False if it was refused."""
        if not may_share(peer_user(writer.get_extra_info("socket")), os.getuid()):
            log.warning("a process of another user was refused")
            return False
        async with asyncio.timeout(GREETING_S):
            hello = await read_frame(reader)
        if hello is None:
            return False
        try:
            version = self._checked(hello)
        except AntiphonError as error:
            writer.write(LocalFrame({"error": error_fields(error)}).encode())
            return False
        mine = self._identity
        welcome = {"version": version, "label": mine.label, "process": mine.process}
        writer.write(LocalFrame(welcome).encode())
        self._greeted.add(writer)
        return True

    def _checked(self, hello: LocalFrame) -> int:
        """Return the highest common version. Raises SharingUnsupported, StoreLocked, StoreError."""
        common = set(VERSIONS) & set(hello.head.get("versions", ()))
        if not common:
            known = ", ".join(map(str, VERSIONS))
            raise SharingUnsupported(f"process {os.getpid()} shares its store in version {known}")
        if hello.head.get("key") != self._identity.key:
            raise StoreLocked(
                f"process {os.getpid()} holds the store with another key,"
                f" {short(bytes.fromhex(self._identity.key))}"
            )
        if len(self._greeted) >= PROCESSES_MAX:
            raise StoreError(f"{PROCESSES_MAX} processes share the store already")
        return max(common)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_frame(reader)) is not None:
            answer = await self._answer(request)
            if answer is not None:
                self._send(writer, answer.encode())

    async def _answer(self, request: LocalFrame) -> LocalFrame | None:
        try:
            answer = await self._in_time(request)
        except AntiphonError as error:
            answer = LocalFrame({"error": error_fields(error)})
        except Exception:
            log.exception("a request of another process failed")
            answer = LocalFrame({"error": error_fields(AntiphonError())})
        number = request.head.get("number")
        if answer is None or number is None:
            return None
        return LocalFrame(answer.head | {"number": number}, answer.blobs)

    async def _in_time(self, request: LocalFrame) -> LocalFrame | None:
        if request.is_given_up:
            # Its caller may have repeated it by now.
            raise StoreLocked("the request waited for too long, and was not begun")
        return await self._perform(request)
