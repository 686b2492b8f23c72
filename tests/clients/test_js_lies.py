"""Entries and answers that the level-1 client in JavaScript must not take for what they seem."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.conformance.io.calls import Caller
from antiphon.v1 import sync_pb2 as pb
from replica.io.keys import load_or_create
from replica.log import Entry, Generation, Kind, Text, entry_to_pb
from tests.clients.test_js import Lab, client, lab, node
from tests.support.lying_hub import Event, LyingHub, answer, lying_hub, shown, void
from tests.support.writers import Writer, said

__all__ = ["lab", "node"]

pytestmark = pytest.mark.xdist_group("node")  # one process installs the packages


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
