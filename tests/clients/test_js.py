"""The level-1 client in JavaScript, on a real hub with a scripted host (PROM-20)."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.conformance.io.proxy import Proxy, proxied
from replica.conversation import Conversation
from replica.io.files.keys import load_or_create
from replica.log.body import Message, text_of
from replica.log.kinds import Kind
from syncd.io.config import HubConfig
from syncd.io.server import HubServer, start
from tests.support.forked_program import PROGRAMS, ForkedProgram
from tests.support.scripted_host import echo, scripted_host

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "js"
PATIENCE_S = 30.0
LINES_MAX = 400

pytestmark = pytest.mark.xdist_group("node")  # one process installs the packages


def program(name: str) -> str:
    """Return the path of node or npm: the machine's, or that of `make node`."""
    path = os.pathsep.join((os.environ["PATH"], str(Path(sys.executable).parent)))
    found = shutil.which(name, path=path)
    assert found is not None, f"no {name}: run `make node`"
    return found


@pytest.fixture(scope="module")
def node() -> str:
    """Install the client's packages once, as its lockfile says; return the path of node."""
    lock, installed = CLIENT / "package-lock.json", CLIENT / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        command = [program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        folder = str(Path(program("node")).parent)
        env = os.environ | {"PATH": os.pathsep.join((os.environ["PATH"], folder))}
        subprocess.run(command, cwd=CLIENT, env=env, check=True, timeout=180)
    return program("node")


class Js:
    """A running client; `events` are those it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []

    async def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        await self.process.stdin.drain()

    async def next(self, name: str) -> dict[str, Any]:
        """Return the next event of this name; fail if the client fails."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while True:
                line = await self.process.stdout.readline()
                assert line, f"the client ended before {name!r}: {self.events[-5:]}"
                self.events.append(json.loads(line))
                assert self.events[-1]["event"] in (name, *OTHERS), self.events[-1]
                if self.events[-1]["event"] == name:
                    return self.events[-1]

    async def end(self) -> None:
        """End its input; it exits once every turn has its answer."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            await self.process.communicate()
        assert self.process.returncode == 0


OTHERS = ("asked", "durable", "draft", "answer", "retry")


@asynccontextmanager
async def client(node: str, address: str, folder: Path) -> AsyncIterator[Js]:
    """Run the client on a hub, with what it keeps in `folder`."""
    process = await asyncio.create_subprocess_exec(
        node, str(CLIENT / "main.mjs"), address, str(folder),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 22,
    )  # fmt: skip
    try:
        yield Js(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Gate:
    """Holds an answer before its third token."""

    def __init__(self) -> None:
        self.is_held, self._open = False, asyncio.Event()

    def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self._open.set()

    async def __call__(self, index: int) -> None:
        await asyncio.sleep(0)
        if self.is_held and index == 2:
            await self._open.wait()


class Lab:
    """A hub, a scripted host that it vouches for, and a proxy in front of the hub."""

    def __init__(self, hub: HubServer, proxy: Proxy, gate: Gate) -> None:
        self.hub, self.proxy, self.gate = hub, proxy, gate

    async def held(self) -> Conversation:
        """Return the one conversation at the hub, once its fold does not pause."""
        shelf = self.hub.driver.hub.shelf
        (conversation,) = (*shelf, *shelf.folding.held)
        await self.hub.driver.folds.ended(conversation)
        return shelf[conversation]

    async def said(self) -> list[str]:
        """Return the texts of the messages at the hub."""
        held = await self.held()
        bodies = [held.log.body(i) for i in held.log.entries]
        return [text_of(body.parts) for body in bodies if isinstance(body, Message)]

    async def hears(self, text: str) -> None:
        """Return once a message is at the hub."""
        async with asyncio.timeout(PATIENCE_S):
            while text not in await self.said():  # noqa: ASYNC110  # no event signals it
                await asyncio.sleep(0)

    async def context(self) -> list[int]:
        """Return the kinds of the entries in the last context."""
        held = await self.held()
        (tip,) = held.order.tips()
        return [entry.header.kind for entry in held.order.context(tip.id)]


def host_key(folder: Path) -> str:
    """Return the public key of the host that keeps its key in `folder`."""
    return load_or_create(folder / "identity.key").public_key().public_bytes_raw().hex()


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    vouched = [host_key(tmp_path / "host")]
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0", host_keys=vouched))
    gate = Gate()
    async with scripted_host(tmp_path / "host", hub.address, echo, gate), proxied(hub.address) as p:
        yield Lab(hub, p, gate)
    await hub.stop()


TURN = [Kind.MESSAGE, Kind.REQUEST]


async def test_a_turn_and_the_next_one(node: str, lab: Lab, tmp_path: Path) -> None:
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        await js.say("one")
        assert (await js.next("answer"))["text"] == "You said: one"
        await js.say("two")
        answer = await js.next("answer")
        assert (answer["text"], answer["refused"]) == ("You said: two", "")
        await js.end()
    assert "draft" in {event["event"] for event in js.events}
    assert await lab.context() == [*TURN, Kind.GENERATION, *TURN]


async def test_no_proxy_of_the_environment_is_used(
    node: str, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRUST-11: nobody listens where the variables point to."""
    for name in ("grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        await js.say("one")
        assert (await js.next("answer"))["text"] == "You said: one"
        await js.end()


async def test_off_loopback_it_makes_no_call(node: str, lab: Lab, tmp_path: Path) -> None:
    """TRUST-3: it has no TLS. 0.0.0.0 is this machine under another name."""
    port = lab.hub.address.rpartition(":")[2]
    for name in ("0.0.0.0", "localhost.example.org", "dns:///127.0.0.1"):
        async with client(node, f"{name}:{port}", tmp_path / name.replace("/", "")) as js:
            await js.say("one")
            assert (await js.next("failed"))["reason"] == "TLS_REQUIRED"
    assert not lab.hub.driver.hub.shelf


def test_it_runs_in_a_folder_of_any_name(node: str, tmp_path: Path) -> None:
    root = tmp_path / "100% ours #1"
    shutil.copytree(ROOT / "proto", root / "proto")
    shutil.copytree(CLIENT, root / "clients" / "js", symlinks=True)
    command = [node, str(root / "clients" / "js" / "main.mjs")]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (ended.stderr, json.loads(ended.stdout)["detail"][:6]) == ("", "usage:")


async def test_a_later_process_reads_the_answers_before(
    node: str, lab: Lab, tmp_path: Path
) -> None:
    for turn in ("one", "two"):
        async with client(node, lab.proxy.address, tmp_path / "js") as js:
            await js.say(turn)
            answers = [await js.next("answer") for _ in range(1 + (turn == "two"))]
            assert answers[-1]["text"] == f"You said: {turn}"
            await js.end()
    assert await lab.context() == [*TURN, Kind.GENERATION, *TURN]


@pytest.mark.skipif(sys.platform != "linux", reason="the name of the folder is Linux's own")
async def test_one_process_at_a_time_uses_a_folder(node: str, lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "js")
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        await js.say("one")
        await js.next("answer")
        for name in ("js", "link"):
            async with client(node, lab.proxy.address, tmp_path / name) as second:
                await second.say("lost")
                assert (await second.next("failed"))["reason"] == "FOLDER_TAKEN"
        await js.say("two")
        await js.next("answer")
        js.process.kill()
        await js.process.wait()
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        await js.next("answer")
        await js.next("answer")
        await js.end()
    assert await lab.context() == [*TURN, Kind.GENERATION, *TURN]


async def test_what_was_written_offline_is_said_once(node: str, lab: Lab, tmp_path: Path) -> None:
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        await js.say("one")
        await js.next("answer")
        lab.proxy.is_open = False
        lab.proxy.cut()
        await js.next("retry")
        await js.say("two")
        await js.next("asked")
        assert await lab.said() == ["one"]
        lab.proxy.is_open = True
        assert (await js.next("answer"))["text"] == "You said: two"
        await js.end()
    assert await lab.said() == ["one", "two"]


async def test_a_long_queue_is_pushed_in_parts(node: str, lab: Lab, tmp_path: Path) -> None:
    texts = [letter * 450_000 for letter in "abc"]  # together more than one call may have
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        await js.say("one")
        await js.next("answer")
        lab.proxy.is_open = False
        lab.proxy.cut()
        for text in texts:
            await js.say(text)
            await js.next("asked")
    lab.proxy.is_open = True
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        for text in ("one", *texts):
            assert (await js.next("answer"))["text"] == f"You said: {text}"
        await js.end()
    assert await lab.said() == ["one", *texts]


async def test_what_can_not_be_said_leaves_the_folder_as_it_was(
    node: str, lab: Lab, tmp_path: Path
) -> None:
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        await js.say("")
        await js.say("x" * 600_000)
        assert (await js.next("failed"))["reason"] == "BODY_TOO_LARGE"
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        await js.say("  ")
        await js.say("one")
        assert (await js.next("answer"))["text"] == "You said: one"
        await js.end()
    assert await lab.said() == ["one"]


TOGETHER = """
import { Client } from './client.mjs';
const client = new Client(process.argv[1], process.argv[2]), texts = [];
client.on('failed', (error) => { throw error; });
client.on('refused', (fault) => { throw new Error(fault.reason); });
client.on('answer', ({ text }) => {
  if (texts.push(text) < 3) return;
  console.log(texts.join());
  client.close();
});
await Promise.all(['one', 'two', 'three'].map((text) => client.ask(text)));
"""


async def test_turns_asked_for_together_begin_one_conversation(
    node: str, lab: Lab, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        node, "--input-type=module", "-e", TOGETHER, lab.proxy.address, str(tmp_path / "js"),
        cwd=CLIENT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        shown, _ = await process.communicate()
    assert shown.decode().strip() == "You said: one,You said: two,You said: three"
    assert await lab.said() == ["one", "two", "three"]


async def test_a_push_without_its_answer_is_repeated_as_the_same_entries(
    node: str, lab: Lab, tmp_path: Path
) -> None:
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        await js.say("one")
        await js.next("answer")
        lab.proxy.is_mute = True
        await js.say("two")
        await lab.hears("two")
        lab.proxy.is_mute = False
        lab.proxy.cut()
        assert (await js.next("retry"))["reason"] == "UNAVAILABLE"
        assert (await js.next("answer"))["text"] == "You said: two"
        await js.end()
    assert await lab.said() == ["one", "two"]
    assert await lab.context() == [*TURN, Kind.GENERATION, *TURN]


async def test_an_answer_goes_on_after_a_cut(node: str, lab: Lab, tmp_path: Path) -> None:
    lab.gate.hold()
    async with client(node, lab.proxy.address, tmp_path / "js") as js:
        await js.say("one")
        while (await js.next("draft"))["text"] != "You said:":
            pass
        lab.proxy.cut()
        await js.next("retry")
        assert (await js.next("draft"))["text"] == "You"  # from offset 0 again
        lab.gate.release()
        assert (await js.next("answer"))["text"] == "You said: one"
        await js.end()
    assert await lab.said() == ["one"]


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@asynccontextmanager
async def hub_process(folder: Path, port: int, vouched: str) -> AsyncIterator[None]:
    """Run a hub as a process, ready when entered, and kill it."""
    argv = ["syncd", "--data-dir", str(folder), "--listen", f"127.0.0.1:{port}"]
    with ForkedProgram(PROGRAMS, [*argv, "--host-key", vouched], os.environ) as process:
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.to_thread(process.stdout.readline)
        yield
        process.kill()
        await asyncio.to_thread(process.wait)


async def test_an_answer_survives_a_hub_that_is_killed(node: str, tmp_path: Path) -> None:
    port, gate, key = free_port(), Gate(), host_key(tmp_path / "host")
    gate.hold()
    address, folder = f"127.0.0.1:{port}", tmp_path / "hub"
    async with hub_process(folder, port, key):
        host = scripted_host(tmp_path / "host", address, echo, gate)
        await host.__aenter__()
        running = client(node, address, tmp_path / "js")
        js = await running.__aenter__()
        await js.say("one")
        await js.next("draft")
    await js.next("retry")
    async with hub_process(folder, port, key):
        gate.release()
        assert (await js.next("answer"))["text"] == "You said: one"
        await js.say("two")
        assert (await js.next("answer"))["text"] == "You said: two"
        await js.end()
        await running.__aexit__(None, None, None)
        await host.__aexit__(None, None, None)


SCRIPT = """
import fs from 'node:fs';
import * as e from './encode.mjs';
const hex = (text) => Buffer.from(text, 'hex');
for (const v of JSON.parse(fs.readFileSync(process.argv[1])).vectors) {
  if (v.of === 'proof') {
    const challenge = { ...v, hub_key: new e.Key(hex(v.hub_private_key)).public,
      hub_nonce: hex(v.hub_nonce), certificate_digest: Buffer.alloc(0) };
    const key = new e.Key(hex(v.private_key));
    const bytes = e.transcript(2, key.public, hex(v.client_nonce), challenge);
    console.log(v.name, key.sign(bytes).toString('hex') === v.client_signature);
  }
  if (v.of !== 'entry') continue;
  const f = v.fields, body = hex(v.body), key = new e.Key(hex(v.private_key));
  const place = { conversation: hex(f.conversation), track: f.track, seq: f.seq, prev: hex(f.prev),
    parents: f.parents.map(hex).reverse(), basis: hex(f.basis), lamport: f.lamport };
  const drawn = { salt: body.subarray(0, 16), timeMs: f.create_time_ms };
  const made = e.signed(key, BigInt(f.epoch), f.kind, body.subarray(16), place, drawn);
  const same = ['header', 'id', 'signature', 'body'].every((n) => made[n].toString('hex') === v[n]);
  console.log(v.name, same && e.opened(made).id.equals(made.id));
}
"""


def test_it_writes_the_bytes_of_the_transcript(node: str) -> None:
    vectors = str(ROOT / "spec" / "vectors" / "level1.json")
    command = [node, "--input-type=module", "-e", SCRIPT, vectors]
    found = subprocess.run(command, cwd=CLIENT, capture_output=True, check=True, timeout=30)
    lines = found.stdout.decode().splitlines()
    assert len(lines) == 9
    assert {line.split()[1] for line in lines} == {"true"}


def test_the_client_is_small() -> None:
    lines = sum(len(path.read_text().splitlines()) for path in CLIENT.glob("*.mjs"))
    assert lines <= LINES_MAX


def test_what_it_can_not_begin_with_is_one_event(node: str, tmp_path: Path) -> None:
    file = tmp_path / "client.json"
    file.write_text('{"seed": "ab')
    file.chmod(0o600)
    for arguments, reason in (
        ([], "ARGUMENT_INVALID"),
        (["127.0.0.1:1", str(tmp_path)], "KEY_FILE_INVALID"),
        (["127.0.0.1:1", str(file)], "FILE_UNUSABLE"),
    ):
        command = [node, str(CLIENT / "main.mjs"), *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        (line,) = done.stdout.splitlines()
        assert (json.loads(line)["reason"], done.returncode, done.stderr) == (reason, 1, "")
