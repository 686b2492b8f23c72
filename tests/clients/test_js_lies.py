"""Entries and answers that the level-1 client in JavaScript must not take for what they seem."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.conformance.io.calls import Caller
from antiphon.v1 import sync_pb2 as pb
from replica.io.files.keys import load_or_create
from replica.log import Entry, Generation, Kind, Request, Sampling, Text, entry_to_pb
from tests.clients.test_js import CLIENT, Lab, client, lab, node
from tests.clients.test_js_refusals import printed
from tests.support.callers import until
from tests.support.lying_hub import (
    Event,
    LyingHub,
    answer,
    durable,
    lying_hub,
    refused,
    shown,
    void,
)
from tests.support.writers import Writer, said

__all__ = ["lab", "node"]

pytestmark = pytest.mark.xdist_group("node")  # one process installs the packages


Lie = Callable[[LyingHub, Entry], tuple[list[Entry], Event]]
"""Returns the entries that a hub shows, and the answer that it names."""


@pytest.fixture
async def hub() -> AsyncIterator[LyingHub]:
    async with lying_hub() as serving:
        yield serving


async def test_a_void_generation_of_the_host_has_no_effect(
    node: str, lab: Lab, tmp_path: Path
) -> None:
    """ENT-7: it ended each later process on the folder."""
    folder = tmp_path / "js"
    async with client(node, lab.proxy.address, folder) as js:
        await js.say("one")
        await js.next("answer")
        await js.end()
    held = await lab.held()
    (told,) = [e for e in held.log.entries.values() if e.header.kind == Kind.GENERATION]
    secret = load_or_create(tmp_path / "host" / "identity.key").private_bytes_raw()
    host = Writer.of_key(secret, epoch=77)
    body = Generation((1,), (Text("x"),), 1, 1)
    made = void(host, host.write(held.id, body, parents=[told]))
    caller = await Caller(lab.hub.address, host.key).enter()
    pushed = await caller.call("Push", pb.PushRequest(entries=[entry_to_pb(made)]))
    assert [one.warning.reason for one in pushed.outcomes] == ["BODY_VOID"]
    await caller.close()
    async with client(node, lab.proxy.address, folder) as js:
        await js.say("two")
        answers = [(await js.next("answer"))["text"] for _ in "12"]
        assert answers == ["You said: one", "You said: two"]
        await js.end()


async def test_a_void_answer_is_told_with_the_reason(
    node: str, hub: LyingHub, tmp_path: Path
) -> None:
    def events(request: Entry) -> list[Event]:
        seal = hub.sealed(request)
        made = void(hub.host, hub.generation(seal))
        return hub.told([seal, made], answer(request, seal, made))

    hub.events = events
    async with client(node, hub.address, tmp_path / "js") as js:
        await js.say("one")
        told = await js.next("answer")
        assert (told["text"], told["refused"].partition(":")[0]) == ("", "BODY_VOID")
        await js.end()


async def test_entries_that_nobody_signed_or_that_can_not_be_read_are_skipped(
    node: str, hub: LyingHub, tmp_path: Path
) -> None:
    """13 §3 leaves the check of others' entries out: they ended the process."""

    def events(request: Entry) -> list[Event]:
        assert request.header.conversation is not None
        entry = hub.eve.write(request.header.conversation, said("x"), parents=[request])
        forged, torn = replace(entry, signature=bytes(64)), replace(entry, header_bytes=b"\x0b")
        other = replace(entry, body=bytes(20))
        return [shown(forged, other, torn), *hub.answered(request)]

    hub.events = events
    async with client(node, hub.address, tmp_path / "js") as js:
        await js.say("one")
        assert (await js.next("answer"))["text"] == "hi"
        await js.end()


def of_another_request(hub: LyingHub, request: Entry) -> tuple[list[Entry], Event]:
    """The host's answer to another request of this conversation."""
    assert request.header.conversation is not None
    body = Request(hub.host.public, Sampling())
    other = hub.eve.write(request.header.conversation, body, parents=[request])
    seal = hub.sealed(other)
    made = hub.generation(seal)
    return [other, seal, made], answer(request, seal, made)


def of_another_conversation(hub: LyingHub, request: Entry) -> tuple[list[Entry], Event]:
    """The host's answer in another conversation."""
    genesis = hub.eve.genesis()
    body = Request(hub.host.public, Sampling())
    seal = hub.sealed(hub.eve.write(genesis.conversation, body, parents=[genesis]))
    made = hub.generation(seal)
    return [seal, made], answer(request, seal, made)


def of_another_author(hub: LyingHub, request: Entry) -> tuple[list[Entry], Event]:
    """The answer of a key that the client did not ask, behind the host's SEAL."""
    seal = hub.sealed(request)
    made = hub.generation(seal, author=hub.eve)
    return [seal, made], answer(request, seal, made)


def refusal_as_answer(hub: LyingHub, request: Entry) -> tuple[list[Entry], Event]:
    """A refusal, which has no SEAL, told with one."""
    made = hub.generation(request, "", detail="HOST_BUSY: no")
    return [made], answer(request, hub.sealed(request), made)


def answer_as_refusal(hub: LyingHub, request: Entry) -> tuple[list[Entry], Event]:
    """An answer told as a refusal."""
    seal = hub.sealed(request)
    made = hub.generation(seal)
    return [seal, made], answer(request, None, made)


def invented(hub: LyingHub, request: Entry) -> tuple[list[Entry], Event]:
    """Ids of no entry."""
    made = hub.generation(hub.sealed(request))
    return [], answer(request, hub.sealed(request), made)


def unsigned(hub: LyingHub, request: Entry) -> tuple[list[Entry], Event]:
    """An answer that the host did not sign."""
    seal = hub.sealed(request)
    made = hub.generation(seal)
    return [seal, replace(made, signature=seal.signature)], answer(request, seal, made)


LIES = [
    of_another_request, of_another_conversation, of_another_author, refusal_as_answer,
    answer_as_refusal, invented, unsigned,
]  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
async def test_an_answer_that_the_host_did_not_give_to_the_request_is_none(
    node: str, hub: LyingHub, tmp_path: Path, lie: Lie
) -> None:
    """LINK-96: it was told as the answer, an invented one as an empty one."""
    hub.events = lambda request: hub.told(*lie(hub, request))
    async with client(node, hub.address, tmp_path / "js") as js:
        await js.say("one")
        assert (await js.next("failed"))["reason"] == "ANSWER_UNPROVED"
    assert "answer" not in {event["event"] for event in js.events}


async def test_the_true_answer_is_told_behind_a_false_one(
    node: str, hub: LyingHub, tmp_path: Path
) -> None:
    def lie_once(request: Entry) -> list[Event]:
        hub.events = hub.answered
        return hub.told(*invented(hub, request))

    hub.events = lie_once
    assert await printed(node, TOLD, hub.address, str(tmp_path / "js")) == ["ANSWER_UNPROVED", "hi"]


async def test_a_watch_that_failed_is_cancelled(node: str, hub: LyingHub, tmp_path: Path) -> None:
    """It went on at the hub, and kept the process from ending."""
    hub.events = lambda request: hub.told(*invented(hub, request))
    process = await asyncio.create_subprocess_exec(
        node, "--input-type=module", "-e", LISTENS, hub.address, str(tmp_path / "js"),
        cwd=CLIENT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ANSWER_UNPROVED\n"
        await until(lambda: hub.open_watches == 0)
        assert hub.watches == 1
    finally:
        process.kill()
        await process.wait()


async def test_a_turn_that_waits_for_a_refused_genesis_begins_a_conversation(
    node: str, hub: LyingHub, tmp_path: Path
) -> None:
    """It waited for ever: the genesis is one that an earlier process left."""
    folder = str(tmp_path / "js")
    assert await printed(node, LEAVES, hub.address, folder) == []

    def refuse_once(pushed: list[Entry]) -> list[pb.PushOutcome]:
        hub.outcomes = durable
        hub.entries.clear()  # none of them is in its log
        return refused(pushed, "CREATE_FORBIDDEN", "no", "Ask the operator.")

    hub.outcomes = refuse_once
    assert await printed(node, GOES_ON, hub.address, folder) == ["CREATE_FORBIDDEN", "hi"]


async def test_a_refusal_of_the_host_is_told_with_its_detail(
    node: str, hub: LyingHub, tmp_path: Path
) -> None:
    def refuse(request: Entry) -> list[Event]:
        made = hub.generation(request, "", detail="HOST_BUSY: no")
        return hub.told([made], answer(request, None, made))

    hub.events = refuse
    async with client(node, hub.address, tmp_path / "js") as js:
        await js.say("one")
        told = await js.next("answer")
        assert (told["text"], told["refused"]) == ("", "HOST_BUSY: no")
        await js.end()


LISTENS = """
import { Client } from './client.mjs';
const [address, folder] = process.argv.slice(1), client = new Client(address, folder);
client.on('failed', ({ reason }) => console.log(reason));
await client.ask('one');
process.stdin.resume();
"""
LEAVES = """
import { Client } from './client.mjs';
const [address, folder] = process.argv.slice(1), client = new Client(address, folder);
client.flush = () => {}; // it ends before it sends
await client.ask('one');
process.exit();
"""
GOES_ON = """
import { Client } from './client.mjs';
const [address, folder] = process.argv.slice(1), client = new Client(address, folder);
client.once('refused', ({ reason }) => console.log(reason));
client.on('answer', ({ text }) => { console.log(text); client.close(); });
client.flush();
await client.ask('two');
"""
TOLD = """
import { Client } from './client.mjs';
const [address, folder] = process.argv.slice(1), client = new Client(address, folder);
client.on('failed', ({ reason }) => { console.log(reason); client.flush(); });
client.on('answer', ({ text }) => { console.log(text); client.close(); });
await client.ask('one');
"""
