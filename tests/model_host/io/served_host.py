"""A real hub, a user's replica and a host that can be restarted, on loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from model_host.engine.torch_engine import TorchEngine
from model_host.io.config import HostConfig
from model_host.io.server import HostServer
from model_host.io.server import start as start_host
from replica.errors import StoreError
from replica.io.driver.replica import Replica
from replica.log.body import Generation
from syncd.io.server import HubServer
from tests.support.talk import Talk


class ServedHost:
    """One hub and one replica; the host keeps its folder across restarts."""

    def __init__(self, folder: Path, engine: TorchEngine, hub: HubServer, replica: Replica) -> None:
        self.folder = folder
        self.hub = hub
        self.replica = replica
        self.engine = engine

    @asynccontextmanager
    async def host(self, engine: TorchEngine | None = None) -> AsyncIterator[HostServer]:
        """Run the host, on another engine if asked."""
        config = HostConfig(data_dir=self.folder / "host", hub=self.hub.address)
        used = engine or self.engine
        try:
            async with start_host(config, used) as host:
                yield host
        finally:
            # The next host begins with an empty memory, as another process would.
            for slab in range(used.memory.slabs):
                used.memory.clear(slab)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "host" / "derived" / "checkpoints"

    @property
    def journals(self) -> Path:
        return self.folder / "host" / "journal"

    async def kept(self, talk: Talk, host: HostServer, count: int) -> None:
        """Wait until the checkpoint of the last answer is written."""
        while host.thread.counts.writes.written < count:
            await host.thread.manifests(talk.id)


def without_room_for_answers(host: HostServer, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let no answer of a host be written; return an event that tells of the first one."""
    append, refused = host.replica.append, asyncio.Event()

    async def full(conversation, body, **more):
        if isinstance(body, Generation):
            refused.set()
            raise StoreError("no space")
        return await append(conversation, body, **more)

    monkeypatch.setattr(host.replica, "append", full)
    return refused
