"""A hub raises its limit of open files, and accepts no more calls than these allow."""

import asyncio
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from replica.io import rpc
from replica.limits import STREAMS_MAX
from replica.link.messages import Close, Hello, Welcome
from syncd.io import server
from syncd.io.descriptors import calls_allowed, connections_allowed
from tests.support.callers import Caller, RawLink, serve_hub
from tests.support.writers import Writer


@pytest.mark.parametrize(
    ("descriptors", "calls"),
    [(1, 1), (1_024, 256), (4 * STREAMS_MAX, STREAMS_MAX), (10**6, STREAMS_MAX)],
)
def test_a_quarter_of_the_descriptors_is_for_streams(descriptors: int, calls: int) -> None:
    assert calls_allowed(descriptors) == calls


def test_half_of_the_descriptors_is_for_the_connections_of_all_addresses() -> None:
    assert connections_allowed(1_024, 1) == 512
    assert connections_allowed(1_024, 2) == 256
    assert connections_allowed(1, 2) == 1


def test_the_limit_is_raised_as_far_as_the_system_allows() -> None:
    """In a process of its own: a hard limit can't be raised again."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 900));"
        "from syncd.io.descriptors import allow_descriptors as a;"
        "print(a(500), resource.getrlimit(resource.RLIMIT_NOFILE)[0], a(5000), a(10))"
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 900
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["500", "500", "900", "900"]


async def test_connections_without_calls_are_bounded_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody counts them, since they prove no key; the system's descriptors are those of all."""
    monkeypatch.setattr(server, "connections_allowed", lambda _descriptors, _addresses: 4)
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
        assert closed.fault.reason == "QUOTA_EXCEEDED"
        await served.say("still here")
        await newcomer.calls.close()
