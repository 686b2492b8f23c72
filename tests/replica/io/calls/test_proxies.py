"""Connections on loopback are direct, whatever the environment says (TRUST-11)."""

import asyncio
from pathlib import Path

import pytest

from replica.io.calls.hub_calls import HubCalls
from replica.io.store.store import Store
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.writers import Writer

VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
BY_ADDRESS = "GRPC_ADDRESS_HTTP_PROXY"
SETTINGS = [*((name, "http://{}") for name in VARIABLES), (BY_ADDRESS, "{}")]
"""The variables that gRPC reads, and the form of a proxy's address in each."""


@pytest.mark.parametrize(("variable", "form"), SETTINGS)
async def test_proxies_of_the_environment_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, form: str
) -> None:
    asked: list[bytes] = []

    async def overhear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(100))
        writer.close()

    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    async with await asyncio.start_server(overhear, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        for name in (*VARIABLES, BY_ADDRESS, "no_proxy", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(variable, form.format(f"127.0.0.1:{port}"))
        monkeypatch.setenv(f"{BY_ADDRESS}_ENABLED_ADDRESSES", "127.0.0.0/8")
        async with await Store.open(tmp_path / "pins.db") as store:
            calls = HubCalls(hub.address, Writer(1).key, store)
            proved, _ = await calls.authenticate()
            await calls.close()
    await hub.stop()
    assert proved == hub.key
    assert asked == []
