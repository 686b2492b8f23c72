"""A TCP proxy on loopback that delays, slices, withholds and cuts what it passes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

CHUNK_BYTES = 65_536


class Proxy:
    """Passes bytes to `target`, host:port, on a port of its own.

    The attributes may change at any time, and hold for all connections.
    """

    def __init__(self, target: str) -> None:
        """Pass everything at once."""
        self.is_open = True
        """False refuses connections."""
        self.is_mute = False
        """True drops the target's answers."""
        self.is_deaf = False
        """True drops the client's bytes; with `is_mute` the proxy is a black hole."""
        self.keeps_target = False
        """True leaves the connection to the target open when the client's ends: half-open."""
        self.latency_s = 0.0
        """Delay of each chunk, in seconds."""
        self.chunk_bytes = CHUNK_BYTES
        """The largest chunk that is passed at a time."""
        self._target = target.rsplit(":", 1)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """The address that clients use."""
        assert self._server is not None, "use it in its block"
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """End all connections at once."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_open:
            writer.transport.abort()
            return
        ahead, back = await asyncio.open_connection(self._target[0], int(self._target[1]))
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._pass(reader, back), self._pass(ahead, writer, answers=True))
        finally:
            self._writers -= {writer, back}

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        answers: bool = False,
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(self.chunk_bytes):
                if self.latency_s:
                    await asyncio.sleep(self.latency_s)
                if not (self.is_mute if answers else self.is_deaf):
                    writer.write(data)
                    await writer.drain()
        if answers or not self.keeps_target:
            writer.transport.abort()


@asynccontextmanager
async def proxied(target: str) -> AsyncIterator[Proxy]:
    """Run a proxy in front of `target`."""
    proxy = Proxy(target)
    proxy._server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
    try:
        yield proxy
    finally:
        proxy._server.close()
        proxy.cut()
        await asyncio.sleep(0)  # the connections' tasks see their end
