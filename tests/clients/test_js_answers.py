"""What the level-1 client in JavaScript keeps of the answers that it told."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.clients.test_js import CLIENT, PATIENCE_S, Lab, lab, node

__all__ = ["lab", "node"]

pytestmark = pytest.mark.xdist_group("node")  # one process installs the packages

PROGRAM = """
import { once } from 'node:events';
const [module, address, folder] = process.argv.slice(1);
const { Client } = await import(module);
const client = new Client(address, folder), kept = [];
client.on('failed', (error) => { throw error; });
for (const turn of ['one', 'two', 'three']) {
  const told = once(client, 'answer');
  await client.ask(turn);
  const [{ text }] = await told;
  kept.push([text, client.texts.size]);
}
console.log(JSON.stringify(kept));
client.close();
"""


async def test_the_text_of_an_answer_is_forgotten_once_it_is_told(
    node: str, lab: Lab, tmp_path: Path
) -> None:
    module, folder = str(CLIENT / "client.mjs"), str(tmp_path / "js")
    process = await asyncio.create_subprocess_exec(
        node, "--input-type=module", "--eval", PROGRAM, module, lab.proxy.address, folder,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        printed, _ = await process.communicate()
    assert json.loads(printed) == [[f"You said: {turn}", 0] for turn in ("one", "two", "three")]
