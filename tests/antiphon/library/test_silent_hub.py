"""Calls beside a hub that is stopped: it accepts connections, and does not answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import antiphon
from antiphon.library.io import members
from antiphon.library.io import replica as replicas
from replica.refusals import HubUnreachable
from tests.antiphon.library.conftest import Lab

PATIENCE_S = 4.0
"""Less than any wait that is not `SYNC_S`."""


class Relay:
    """A port that passes bytes between replicas and a hub while it `runs`."""

    def __init__(self, hub: str) -> None:
        self._host, _, self._port = hub.rpartition(":")
        self._passing: set[asyncio.Task[None]] = set()
        self.runs = asyncio.Event()
        self.runs.set()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in self._passing:
                task.cancel()
            await asyncio.gather(*self._passing, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(self._host, int(self._port))
        for source, sink in ((reader, there[1]), (there[0], writer)):
            self._passing.add(asyncio.create_task(self._pass(source, sink)))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                await self.runs.wait()
                sink.write(data)
        finally:
            sink.close()


@asynccontextmanager
async def silenced(lab: Lab) -> AsyncIterator[tuple[Relay, str]]:
    """Put a relay before the lab's hub."""
    assert lab.hub is not None
    relay = Relay(lab.hub.address)
    async with relay.opened() as address:
        yield relay, address


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (members, replicas):
        monkeypatch.setattr(module, "SYNC_S", 0.2)


async def test_an_invitation_says_that_the_hub_does_not_answer(lab: Lab):
    async with silenced(lab) as (relay, address), lab.open(hub=address) as me:
        trip = await me.conversation("trip")
        assert await trip.sync()
        relay.runs.clear()
        with pytest.raises(HubUnreachable) as refused:
            async with asyncio.timeout(PATIENCE_S):
                await trip.invite("bob")
        assert str(refused.value) == "no answer came in time"


async def test_a_conversation_begins_beside_a_hub_that_falls_silent(lab: Lab):
    async with silenced(lab) as (relay, address), lab.open(hub=address) as me:
        assert await me.sync()
        relay.runs.clear()
        async with asyncio.timeout(PATIENCE_S):
            trip = await me.conversation("trip")
        assert await trip.title() == "trip"


@pytest.mark.parametrize("call", ["conversation", "invite"])
async def test_a_call_of_the_hub_ends_with_its_replica(lab: Lab, call: str):
    async with silenced(lab) as (relay, address):
        async with lab.open(hub=address) as me:
            trip = await me.conversation("trip")
            assert await me.sync()
            relay.runs.clear()
            made = me.conversation("late") if call == "conversation" else trip.invite("bob")
            waiting = asyncio.create_task(made)
            for _ in range(30):
                await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(antiphon.ReplicaClosed):
                await waiting
