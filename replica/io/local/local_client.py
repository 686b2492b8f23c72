"""The connection of a process to the one that serves its store (DECISIONS D340)."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from replica.errors import AntiphonError
from replica.io.local import local_socket
from replica.io.local.local_frames import (
    VERSIONS,
    LocalFrame,
    WriteUnconfirmed,
    error_in,
    read_frame,
)
from replica.io.local.local_server import GREETING_S, Identity
from replica.refusals import FrameMalformed, StoreLocked

ANSWER_S = 30.0
"""Seconds that a request waits for its answer; it is not begun after them."""
SILENT_S = 1.0
"""The same, once a request had no answer in time: calls that queue are not late one by one."""
UNREAD_BYTES_MAX = 16 * 1024 * 1024
"""Unread bytes beyond which nothing more is sent to a process that has left a request unanswered,
and no acks in any case."""

Notice = Callable[[LocalFrame], Awaitable[None]]
"""Receives an announcement; the next frame is read once it returned."""


class ConnectionEnded(Exception):
    """The serving process ended, or ended the connection; the answer is not known."""


class LocalClient:
    """One connection; its requests are answered in order."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Identity
    ) -> None:
        """Use `join`."""
        self.server = server
        """The serving process."""
        self._reader = reader
        self._writer = writer
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[LocalFrame]] = {}
        self._ended = self._is_silent = False

    @classmethod
    async def join(cls, store: Path, identity: Identity) -> "LocalClient":
        """Connect to the process that serves a store.

        Raises ConnectionEnded if none does, or it is of another user, FrameMalformed, and its
        refusal: SharingUnsupported, StoreLocked. Whatever ends it ends the connection.
        """
        try:
            connected = local_socket.connect(store)
            if not local_socket.may_share(local_socket.peer_user(connected), os.getuid()):
                connected.close()
                raise ConnectionEnded
            reader, writer = await asyncio.open_unix_connection(sock=connected)
        except OSError as error:
            raise ConnectionEnded from error
        try:
            return cls(reader, writer, await _greeted(reader, writer, identity))
        except BaseException:
            writer.close()
            raise

    async def run(self, notice: Notice) -> None:
        """Receive answers and announcements until the connection ends."""
        try:
            while (frame := await read_frame(self._reader)) is not None:
                self._is_silent = False
                number = frame.head.get("number")
                if number is None:
                    await notice(frame)
                    continue
                waiting = self._waiting.pop(number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame)
        finally:
            self.close()

    async def request(self, frame: LocalFrame) -> LocalFrame:
        """Send a request; return its answer.

        Raises ConnectionEnded and the error answered. Without an answer, as from a process that
        was stopped, raises WriteUnconfirmed if the request writes, else StoreLocked, which is
        raised too for one that is not sent. Requests are performed in order: the answer to a
        later one says that an earlier one is decided.
        """
        if self._ended:
            raise ConnectionEnded
        silent = f"process {self.server.process} holds the store and does not answer"
        if self._is_silent and self._is_full:
            raise StoreLocked(silent)
        number, bound_s = next(self._numbers), ANSWER_S
        if self._is_silent:
            bound_s = min(SILENT_S, ANSWER_S)
        answered = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        # The clock is the machine's, the same in both processes.
        head = frame.head | {"number": number, "until_s": time.monotonic() + bound_s}
        self._writer.write(LocalFrame(head, frame.blobs).encode())
        try:
            async with asyncio.timeout(bound_s):
                answer: LocalFrame = await answered
        except TimeoutError as late:
            self._is_silent = True
            raise (WriteUnconfirmed if frame.writes else StoreLocked)(silent) from late
        finally:
            self._waiting.pop(number, None)
        if "error" in answer.head:
            error: AntiphonError = error_in(answer.head["error"])
            raise error
        return answer

    def send(self, frame: LocalFrame) -> None:
        """Send a request without an answer; it is lost behind the end, or much that is unread."""
        if not (self._ended or self._is_full):
            self._writer.write(frame.encode())

    @property
    def _is_full(self) -> bool:
        return self._writer.transport.get_write_buffer_size() > UNREAD_BYTES_MAX

    def close(self) -> None:
        """End the connection; every request that waits raises ConnectionEnded."""
        self._ended = True
        self._writer.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionEnded())
        self._waiting.clear()


async def _greeted(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, identity: Identity
) -> Identity:
    """Greet the process that serves; return who it is. Raises what `join` does."""
    hello = {"versions": VERSIONS, "key": identity.key, "label": identity.label}
    writer.write(LocalFrame(hello | {"process": identity.process}).encode())
    try:
        async with asyncio.timeout(GREETING_S):
            welcome = await read_frame(reader)
    except TimeoutError:
        welcome = None
    if welcome is None:
        raise ConnectionEnded
    if "error" in welcome.head:
        raise error_in(welcome.head["error"])
    if not {"label", "process"} <= welcome.head.keys():
        raise FrameMalformed("the greeting does not say who serves")
    return Identity(identity.key, welcome.head["label"], welcome.head["process"])
