"""Keys with tickets at a real hub on loopback: one conversation, an owner, a stranger."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.io import calls
from antiphon.conformance.io.calls import RawLink
from replica.ids import ConversationId
from replica.io import rpc, status
from replica.io.calls.hub_calls import HubCalls
from replica.io.store.store import Store
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from tests.support.writers import Writer, said

PATIENCE_S = 20.0


class Caller(calls.Caller):
    """A key with a ticket, with the raw stubs and the client of `replica.io` beside them."""

    def __init__(self, address: str, store: Store, key: Ed25519PrivateKey) -> None:
        self.calls = HubCalls(address, key, store)
        super().__init__(address, key, self.calls.channel)

    async def enter(self) -> "Caller":
        _, ticket = await self.calls.authenticate()
        self.metadata = ((rpc.TICKET_METADATA, ticket),)
        return self


class ServedHub:
    """A hub that serves one conversation of three messages, its owner, and a stranger."""

    def __init__(self, hub: HubServer, owner: Caller, stranger: Caller, writer: Writer) -> None:
        self.hub, self.owner, self.stranger, self.writer = hub, owner, stranger, writer
        self.genesis = writer.genesis()
        self.id = ConversationId(self.genesis.id)
        self.entries = [self.genesis]

    async def say(self, text: str) -> None:
        entry = self.writer.write(self.id, said(text), parents=[self.entries[-1]])
        self.entries.append(entry)
        assert await self.owner.calls.push(self.id, (entry,)) == {entry.id: None}


@asynccontextmanager
async def serve_hub(folder: Path, **settings: Any) -> AsyncIterator[ServedHub]:
    """Run a hub in `folder`, with these settings, and let the owner write."""
    config = HubConfig(data_dir=folder / "hub", listen="127.0.0.1:0", **settings)
    hub = await start(config)
    store = await Store.open(folder / "pins.db")
    writer = Writer(1)
    owner = await Caller(hub.address, store, writer.key).enter()
    stranger = await Caller(hub.address, store, Writer(9).key).enter()
    built = ServedHub(hub, owner, stranger, writer)
    assert await owner.calls.push(built.id, (built.genesis,)) == {built.genesis.id: None}
    for text in ("one", "two", "three"):
        await built.say(text)
    try:
        yield built
    finally:
        await owner.calls.close()
        await stranger.calls.close()
        await hub.stop()
        await store.close()


async def refused(call: Any) -> str:
    """Return the reason a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        if hasattr(call, "read"):
            while await call.read() is not grpc.aio.EOF:
                pass
        else:
            await call
    assert error.value.code() not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
    return status.from_rpc_error(error.value).reason


async def until(condition: Callable[[], bool]) -> None:
    """Yield to the event loop until a condition holds; fail after a bound."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  # no event signals changes inside a hub
            await asyncio.sleep(0)


__all__ = ["Caller", "RawLink", "ServedHub", "refused", "serve_hub", "until"]
