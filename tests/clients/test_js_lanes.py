"""The lanes that the level-1 client in JavaScript writes, on a real hub (spec/02-entry §7)."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.ids import PublicKey, Track
from tests.clients.test_js import Lab, client, lab, node

__all__ = ["lab", "node"]

pytestmark = pytest.mark.xdist_group("node")  # one process installs the packages


async def lanes(lab: Lab, folder: Path) -> int:
    """Return how many lanes of the conversation track the client of a folder has."""
    log, seed = (await lab.held()).log, json.loads((folder / "client.json").read_text())["seed"]
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed)).public_key().public_bytes_raw()
    return sum(lane.track == Track.CONVERSATION for lane in log.lanes_of(PublicKey(key)))


async def test_a_later_process_goes_on_in_the_lane_of_the_one_before(
    node: str, lab: Lab, tmp_path: Path
) -> None:
    """Each process began a lane, and a hub bounds the lanes of a key (LIM-5)."""
    folder = tmp_path / "js"
    for turn in ("one", "two", "three"):
        if turn == "three":  # written elsewhere since, as after a restored backup
            kept = json.loads((folder / "client.json").read_text())
            kept["lane"]["id"] = "00" * 32
            (folder / "client.json").write_text(json.dumps(kept))
        async with client(node, lab.proxy.address, folder) as js:
            await js.say(turn)
            while (await js.next("answer"))["text"] != f"You said: {turn}":
                pass
            await js.end()
        assert await lanes(lab, folder) == (2 if turn == "three" else 1)
