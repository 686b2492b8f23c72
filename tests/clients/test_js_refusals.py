"""A turn that a hub refuses, as the level-1 client in JavaScript meets it (spec/13-level-1 §5)."""

import asyncio
import json
from pathlib import Path

import pytest

from antiphon.v1 import sync_pb2 as pb
from replica.log import Entry
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.clients.test_js import CLIENT, PATIENCE_S, Lab, client, free_port, host_key, lab, node
from tests.support.lying_hub import durable, lying_hub, refused
from tests.support.scripted_host import echo, scripted_host

__all__ = ["lab", "node"]

pytestmark = pytest.mark.xdist_group("node")  # one process installs the packages


async def printed(node: str, program: str, *arguments: str) -> list[str]:
    """Run a program beside the client; return the lines it prints."""
    process = await asyncio.create_subprocess_exec(
        node, "--input-type=module", "-e", program, *arguments,
        cwd=CLIENT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        shown, _ = await process.communicate()
    return shown.decode().splitlines()


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
    assert (kept["unacked"], {"conversation", "host", "lane"} & kept.keys()) == ([], set())
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


UNSAVED = """
import fs from 'node:fs';
import { once } from 'node:events';
import { Client } from './client.mjs';
const [address, folder] = process.argv.slice(1), client = new Client(address, folder), told = [];
const blocked = folder + '/client.json.new';
client.on('failed', (error) => { throw error; });
const turn = (text) => Promise.all([once(client, 'answer'), client.ask(text)]);
fs.mkdirSync(blocked);
await client.ask('zero').catch(({ code }) => told.push(code));
fs.rmdirSync(blocked);
await turn('one');
fs.mkdirSync(blocked);
await client.ask('lost').catch(({ code }) => told.push(code));
fs.rmdirSync(blocked);
await turn('two');
console.log(told.join());
client.close();
"""


async def test_a_turn_that_could_not_be_saved_is_not_sent_later(
    node: str, lab: Lab, tmp_path: Path
) -> None:
    """ENT-13: the caller was told that it failed, and the next turn sent it, too."""
    assert (await printed(node, UNSAVED, lab.proxy.address, str(tmp_path / "js"))) == [
        "EISDIR,EISDIR"
    ]
    assert await lab.said() == ["one", "two"]


SYNCED = """
import fs from 'node:fs';
const synced = [], sync = fs.fsyncSync;
fs.fsyncSync = (file) => { synced.push(fs.fstatSync(file).isDirectory()); sync(file); };
const { Client } = await import('./client.mjs');
const client = new Client('127.0.0.1:1', process.argv[1]);
client.save();
console.log(synced.includes(true));
client.close();
"""


async def test_the_new_name_of_its_file_is_made_durable(node: str, tmp_path: Path) -> None:
    assert await printed(node, SYNCED, str(tmp_path)) == ["true"]


async def test_a_refusal_is_told_with_its_detail_and_the_next_step(
    node: str, tmp_path: Path
) -> None:
    async with lying_hub() as hub, client(node, hub.address, tmp_path / "js") as js:
        hub.outcomes = lambda pushed: refused(pushed, "ROLE_FORBIDS", "Why.", "Do this.")
        await js.say("one")
        assert (await js.next("failed"))["detail"] == "ROLE_FORBIDS: Why. Do this."


async def test_a_push_that_is_answered_without_outcomes_is_repeated(
    node: str, tmp_path: Path
) -> None:
    async with lying_hub() as hub, client(node, hub.address, tmp_path / "js") as js:

        def nothing_once(_: list[Entry]) -> list[pb.PushOutcome]:
            hub.outcomes = durable
            return []

        hub.outcomes = nothing_once
        await js.say("one")
        assert (await js.next("retry"))["reason"] == "UNAVAILABLE"
        assert (await js.next("answer"))["text"] == "hi"
        await js.end()
    assert hub.pushes == 2


async def test_a_damaged_or_open_file_is_refused_and_left_as_it_is(
    node: str, lab: Lab, tmp_path: Path
) -> None:
    """TRUST-1, TRUST-10, TRUST-12: it made another key, and pinned another hub."""
    file = tmp_path / "js" / "client.json"
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        await js.say("one")
        await js.next("answer")
        await js.end()
    whole = file.read_text()
    kept = json.loads(whole)
    assert len(bytes.fromhex(kept["public"])) == 32
    digit = "1" if kept["seed"][0] == "0" else "0"
    damaged = [kept | {"seed": digit + kept["seed"][1:]}, kept | {"hub": None}, {}, [], None]
    for text, mode in ((whole, 0o666), (whole, 0o640), *((json.dumps(d), 0o600) for d in damaged)):
        file.write_text(text)
        file.chmod(mode)
        async with client(node, lab.proxy.address, tmp_path / "js") as js:
            assert (await js.next("failed"))["reason"] == "KEY_FILE_INVALID"
        assert file.read_text() == text
    before = {name: value for name, value in kept.items() if name not in ("check", "public")}
    file.write_text(json.dumps(before))
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        assert (await js.next("failed"))["reason"] == "KEY_FILE_UNCHECKED"
    file.write_text(whole)
    file.chmod(0o600)
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        assert (await js.next("answer"))["text"] == "You said: one"
        await js.end()
