"""The lanes that the level-1 client in JavaScript writes, on a real hub (spec/02-entry §7)."""

import json
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.ids import PublicKey, Track
from tests.clients.test_js import CLIENT, Lab, client, lab, node
from tests.support.writers import Writer, said

__all__ = ["lab", "node"]

pytestmark = pytest.mark.xdist_group("node")  # one process installs the packages


async def lanes(lab: Lab, folder: Path) -> int:
    """Return how many lanes of the conversation track the client of a folder has."""
    log, seed = (await lab.held()).log, json.loads((folder / "client.json").read_text())["seed"]
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed)).public_key().public_bytes_raw()
    return sum(lane.track == Track.CONVERSATION for lane in log.lanes_of(PublicKey(key)))


CURSOR = """
import {{ Client }} from '{client}';
const client = new Client('127.0.0.1:1', '{folder}'), seen = client.cursor;
const [first, ...later] = {entries}.map((entry) => entry.map((hex) => Buffer.from(hex, 'hex')));
const receive = ([header, signature]) => client.receiveEntry({{ header, signature }}, seen);
receive(first);
for (let n = 0; n < 8191; n += 1) seen.set(`lane ${{n}}`, {{ id: Buffer.from(String(n)) }});
later.forEach(receive);
const stream = Object.assign((async function* () {{}})(), {{ cancel() {{}} }});
client.stub = {{ Watch: (request) => ((client.asked = request), stream), close() {{}} }};
client.metadata = {{}};
await client.watchOnce().catch(() => {{}});
const ids = client.asked.cursor.map((head) => head.id.toString('hex'));
console.log(JSON.stringify({{ count: ids.length, last: ids.slice(-2) }}));
client.close();
"""


def test_a_cursor_names_the_lanes_of_the_latest_entries(node: str, tmp_path: Path) -> None:
    ada, bob = Writer(1), Writer(2)
    genesis = ada.genesis()
    first = ada.write(genesis.conversation, said("one"), parents=[genesis])
    second = ada.write(genesis.conversation, said("two"), parents=[first])
    other = bob.write(genesis.conversation, said("three"), parents=[second])
    entries = [[e.header_bytes.hex(), e.signature.hex()] for e in (first, second, other)]
    script = CURSOR.format(
        client=(CLIENT / "client.mjs").as_uri(), folder=tmp_path, entries=json.dumps(entries)
    )
    done = subprocess.run(
        [node, "--input-type=module", "-e", script], check=True, capture_output=True, timeout=60
    )
    named = json.loads(done.stdout)
    assert named == {"count": 8192, "last": [second.id.hex(), other.id.hex()]}


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
