"""A turn that a hub refuses, as the level-1 client in JavaScript meets it (spec/13-level-1 §5)."""

import json
from pathlib import Path

import pytest

from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.clients.test_js import client, free_port, host_key, node
from tests.support.scripted_host import echo, scripted_host

__all__ = ["node"]

pytestmark = pytest.mark.xdist_group("node")  # one process installs the packages


async def test_after_a_refused_genesis_the_next_turn_begins_a_conversation(
    node: str, tmp_path: Path
) -> None:
    """The folder kept the refused one, at which each later turn was CONVERSATION_NOT_FOUND."""
    settings = {
        "data_dir": tmp_path / "hub",
        "listen": f"127.0.0.1:{free_port()}",
        "host_keys": [host_key(tmp_path / "host")],
    }
    hub = await start(HubConfig(**settings, creators=["ab" * 32]))
    async with (
        scripted_host(tmp_path / "host", hub.address, echo),
        client(node, hub.address, tmp_path / "js") as js,
    ):
        await js.say("one")
        assert (await js.next("failed"))["reason"] == "CREATE_FORBIDDEN"
    kept = json.loads((tmp_path / "js" / "client.json").read_text())
    assert (kept["unacked"], kept.keys()) == ([], {"seed", "hub", "unacked"})
    await hub.stop()
    hub = await start(HubConfig(**settings))
    async with (
        scripted_host(tmp_path / "host", hub.address, echo),
        client(node, hub.address, tmp_path / "js") as js,
    ):
        await js.say("two")
        assert (await js.next("answer"))["text"] == "You said: two"
        await js.end()
    await hub.stop()
