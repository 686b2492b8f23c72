"""A hub, a reader, and hosts of a tiny model with one key ring, on loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from model_host.io.config import HostConfig
from model_host.io.server import HostServer
from model_host.io.server import start as start_host
from replica.ids import PublicKey
from replica.io.driver.replica import Replica
from replica.io.files.keys import load_or_create
from replica.log.body import Grant, Member, Role
from replica.log.entry import public_key
from syncd.io.config import HubConfig
from syncd.io.server import HubServer
from syncd.io.server import start as start_hub
from tests.model_host.io.two_profiles import KV_BYTES, write_model
from tests.support.talk import Talk, key_of


class TinyHosts:
    """One hub and one reader; each host keeps its folder across restarts."""

    def __init__(self, folder: Path, hub: HubServer, replica: Replica, model: Path) -> None:
        self.folder = folder
        self.hub = hub
        self.replica = replica
        self.model = model

    def key(self, name: str) -> PublicKey:
        return public_key(load_or_create(self.folder / name / "identity.key"))

    @asynccontextmanager
    async def host(
        self, name: str = "one", ring: str = "ring", **settings: Any
    ) -> AsyncIterator[HostServer]:
        config = HostConfig(
            data_dir=self.folder / name,
            hub=self.hub.address,
            key_ring=self.folder / ring,
            model=(str(self.model),),
            numerics="fp32",
            kv_bytes_max=KV_BYTES,
            hub_checkpoint_idle_s=0,
            hub_checkpoint_tokens_min=1,
            **settings,
        )
        async with start_host(config) as host:
            await host.replica.wait_for(lambda: host.replica.hub.is_linked, 30)
            yield host

    async def talk(self, *names: str) -> Talk:
        """Begin a conversation with hosts."""
        talk = await Talk.begin(self.replica, self.key(names[0]))
        for name in names[1:]:
            heads = tuple(talk.held.log.membership_heads())
            grant = Member(Grant(self.key(name), Role.HOST))
            await self.replica.append(talk.id, grant, parents=heads)
        return talk

    def blobs(self, talk: Talk) -> list[Path]:
        """Return the files of a conversation's blobs that expire."""
        return sorted((self.folder / "hub" / "expiring" / talk.id.hex()).glob("*"))


@asynccontextmanager
async def tiny_hosts(folder: Path, **hub_settings: Any) -> AsyncIterator[TinyHosts]:
    """Run hub and reader."""
    model = write_model(folder / "model")
    config = HubConfig(data_dir=folder / "hub", listen="127.0.0.1:0", **hub_settings)
    hub = await start_hub(config)
    try:
        async with Replica.open(folder / "replica" / "log.db", key_of(1), hub.address) as replica:
            await replica.wait_for(lambda: replica.hub.is_linked, 30)
            yield TinyHosts(folder, hub, replica, model)
    finally:
        await hub.stop()
