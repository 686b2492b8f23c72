"""A real hub on loopback that keeps archives, for benchmarks."""

import asyncio
import hashlib
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from replica.ids import ConversationId, Digest
from replica.io import BlobCalls, Replica, keys, log_to_stderr, now_ms
from replica.limits import BLOB_CHUNK_BYTES
from replica.log import Genesis
from syncd.io.config import HubConfig
from syncd.io.server import start

LIFETIME_MS = 3_600_000


class HubBlobs:
    """Blobs that expire, in a conversation of their own; use `with`."""

    def __init__(self, folder: Path) -> None:
        """Keep hub and replica below `folder`."""
        self._folder = folder
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()

    def __enter__(self) -> Self:
        """Start the hub; what it logs goes to stderr."""
        log_to_stderr()
        self._runner.run(self._start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the hub."""
        self._runner.run(self._stack.aclose())
        self._runner.close()

    async def _start(self) -> None:
        hub = await start(HubConfig(data_dir=self._folder / "hub", listen="127.0.0.1:0"))
        self._stack.push_async_callback(hub.stop)
        key = keys.load_or_create(self._folder / "identity.key")
        opening = Replica.open(self._folder / "log" / "log.db", key, hub.address)
        replica = await self._stack.enter_async_context(opening)
        self._conversation: ConversationId = await replica.create(Genesis((replica.public,)))
        if not await replica.wait_synced(self._conversation):
            raise RuntimeError("the hub did not accept the conversation")
        self._blobs = BlobCalls(replica.calls())

    def put(self, data: bytes) -> Digest:
        """Write a blob; return its digest."""
        digest = Digest(hashlib.sha256(data).digest())

        def read(at: int) -> bytes:
            return data[at : at + BLOB_CHUNK_BYTES]

        expire_ms = now_ms() + LIFETIME_MS
        write = self._blobs.write(self._conversation, digest, len(data), read, expire_ms)
        self._runner.run(write)
        return digest

    def get(self, digest: Digest, file: Path) -> int:
        """Read a blob into a file; return its bytes."""
        return self._runner.run(self._get(digest, file))

    async def _get(self, digest: Digest, path: Path) -> int:
        size = 0
        with path.open("wb") as file:
            async for part in self._blobs.read(self._conversation, digest):
                size += file.write(part)
        return size
