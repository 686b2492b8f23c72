"""A hub bounds connections that prove no key, and divides its streams among keys."""

import asyncio
from pathlib import Path

import pytest

from replica.io import rpc
from replica.io.serving import grpc_server
from replica.link.messages import Close, Hello, Welcome
from tests.support.callers import Caller, RawLink, serve_hub
from tests.support.writers import Writer


async def test_connections_without_calls_are_bounded_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody counts them, since they prove no key; the system's descriptors are those of all."""
    monkeypatch.setattr(grpc_server, "connections_allowed", lambda _descriptors, _addresses: 4)
    idle = [(name, 1_000 if "idle" in name else value) for name, value in rpc.SERVER_OPTIONS]
    monkeypatch.setattr(rpc, "SERVER_OPTIONS", tuple(idle))
    async with serve_hub(tmp_path) as served, asyncio.timeout(20):
        host, _, port = served.hub.address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(8)]
        accepted = [bool(await reader.read(1)) for reader, _ in silent]  # HTTP/2's greeting, or EOF
        assert accepted.count(True) <= 4
        await served.say("those with calls go on")
        late = Caller(served.hub.address, served.owner.calls._store, Writer(5).key)
        await late.calls.channel.channel_ready()  # once the silent ones have ended
        for (reader, writer), was_accepted in zip(silent, accepted, strict=True):
            if was_accepted:
                await reader.read()  # up to its end
            writer.close()
        await late.calls.close()


async def test_a_newcomer_gets_a_link_from_the_key_with_most(tmp_path: Path) -> None:
    async with serve_hub(tmp_path) as served:
        served.hub.driver.streams._total_max = 4
        store = served.owner.calls._store
        links: list[RawLink] = []
        for _ in range(4):
            links.append(served.stranger.link())
            await links[-1].send(Hello((1,)))
            assert isinstance(await links[-1].read(), Welcome)
        newcomer = await Caller(served.hub.address, store, Writer(5).key).enter()
        link = newcomer.link()
        await link.send(Hello((1,)))
        assert isinstance(await link.read(), Welcome)
        closed = await links[0].read()
        assert isinstance(closed, Close)
        assert closed.fault is not None
        assert closed.fault.reason == "RATE_LIMITED"
        await served.say("still here")
        await newcomer.calls.close()
