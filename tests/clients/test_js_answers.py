"""What the level-1 client in JavaScript shows and keeps of answers."""

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

DRAFTS = """
const [module, address, folder] = process.argv.slice(1);
const { Client } = await import(module);
const client = new Client(address, folder), shown = [], [one, two, other] = ['01', '02', '03'];
const draft = (name, run, byte_offset, text) => client.receiveDraft(
  { request: Buffer.from(name, 'hex'), run, byte_offset, data: Buffer.from(text) });
client.on('draft', ({ request, text }) => shown.push([request, text]));
for (const own of [one, two]) client.told.set(own, false);
draft(one, '7', 0, '');
draft(one, '7', 0, 'The');
draft(two, '8', 0, 'A');
draft(other, '9', 0, 'Not');
draft(one, '7', 3, ' sea');
draft(one, '6', 7, '?');
draft(two, '8', 1, ' hill');
draft(two, '5', 0, 'Anew');
console.log(JSON.stringify(shown));
client.close();
"""


async def run(node: str, program: str, address: str, folder: str) -> object:
    """Return what a program prints, as JSON."""
    process = await asyncio.create_subprocess_exec(
        node, "--input-type=module", "--eval", program, str(CLIENT / "client.mjs"), address, folder,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        printed, _ = await process.communicate()
    return json.loads(printed)


async def test_drafts_of_answers_that_are_computed_at_once_are_told_apart(
    node: str, lab: Lab, tmp_path: Path
) -> None:
    shown = await run(node, DRAFTS, lab.proxy.address, str(tmp_path / "js"))
    assert shown == [
        ["01", "The"],
        ["02", "A"],
        ["01", "The sea"],
        ["02", "A hill"],
        ["02", "Anew"],
    ]


async def test_the_text_of_an_answer_is_forgotten_once_it_is_told(
    node: str, lab: Lab, tmp_path: Path
) -> None:
    kept = await run(node, PROGRAM, lab.proxy.address, str(tmp_path / "js"))
    assert kept == [[f"You said: {turn}", 0] for turn in ("one", "two", "three")]
