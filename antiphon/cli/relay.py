"""A TCP relay on loopback that counts bytes, including HTTP/2 framing.

For the demo and the benchmarks: a replica connects to the hub through it, so
that the size of a turn is measured at the socket.
"""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

READ_BYTES = 64 * 1024


class Relay:
    """Forwards connections to one address; an async context manager."""

    def __init__(self, target: str) -> None:
        """Relay to `target`, host:port; it may be restarted."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.bytes_up = 0
        """Bytes from the client to the hub."""
        self.bytes_down = 0
        """Bytes from the hub to the client."""

    @property
    def address(self) -> str:
        """Address to connect to instead of the target."""
        assert self._server is not None, "enter the relay first"
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    @property
    def bytes_total(self) -> int:
        """Bytes of both directions so far."""
        return self.bytes_up + self.bytes_down

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening and close all connections."""
        assert self._server is not None, "enter the relay first"
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer), name="relay")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hub_reader, hub_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(reader, hub_writer, up=True))
                both.create_task(self._pass_on(hub_reader, writer, up=False))
        finally:
            for end in (writer, hub_writer):
                end.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(READ_BYTES):
                if up:
                    self.bytes_up += len(data)
                else:
                    self.bytes_down += len(data)
                writer.write(data)
                await writer.drain()
        with suppress(OSError):
            # One side has ended; closing the other ends it too.
            writer.close()
