"""Two hosts with one key: neither interrupts or repeats what the other one answers."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from model_host.io.server import HostServer
from replica.conversation import Author
from replica.ids import SALT_BYTES, ConversationId, EntryId
from replica.io.files.keys import load_or_create
from replica.log import Entry, Kind
from replica.log.body import FinishReason, Generation, Seal
from tests.model_host.io.served_host import without_room_for_answers
from tests.model_host.io.test_request_handler import rendering_held_up, until_waiting
from tests.model_host.io.tiny_hosts import TinyHosts, tiny_hosts
from tests.support.callers import until
from tests.support.talk import Talk

Logs = list[dict[str, object]]


@asynccontextmanager
async def twins(folder: Path) -> AsyncIterator[tuple[TinyHosts, HostServer, HostServer]]:
    """Run two hosts, each in its own folder, on one identity.key."""
    async with tiny_hosts(folder) as made:
        for name in ("one", "two"):
            (folder / name).mkdir()
        load_or_create(folder / "one" / "identity.key")
        shutil.copy(folder / "one" / "identity.key", folder / "two" / "identity.key")
        async with made.host("one") as one, made.host("two") as two:
            yield made, one, two


def written(talk: Talk, host: HostServer, kind: type) -> list[object]:
    """Return the bodies of a kind that a host has in its log of a conversation."""
    log = host.replica.shelf[talk.id].log
    bodies = (log.body(entry) for entry in log.entries)
    return [body for body in bodies if isinstance(body, kind)]


def journals(folder: Path) -> list[Path]:
    """Return the journals of all hosts."""
    return [*folder.glob("*/journal/*")]


async def until_left(logs: Logs) -> dict[str, object]:
    """Wait until a host has said that it leaves a request to the other one; return the line."""

    def said() -> Logs:
        return [line for line in logs if line.get("reason") == "HOST_KEY_SHARED"]

    await until(lambda: bool(said()))  # it may say so behind the last change of its replica
    return said()[0]


def answering_late(one: HostServer, two: HostServer, logs: Logs, patch: pytest.MonkeyPatch) -> None:
    """Let a host end no answer before the other one has left the request to it."""
    append = one.replica.append

    async def late(conversation, body, **more):
        if isinstance(body, Generation):
            await until_left(logs)
        return await append(conversation, body, **more)

    patch.setattr(one.replica, "append", late)


async def check_answer(talk: Talk, request: EntryId, one: HostServer, two: HostServer) -> None:
    """Check that there is one answer, which was not interrupted, and nothing else to do."""
    answer = await talk.answer(request)
    assert answer.finish_reason == FinishReason.LENGTH
    for host in (one, two):
        assert await host.replica.wait_for(lambda: bool(written(talk, host, Generation)), 10)  # noqa: B023
        await until(lambda: not host.host.running)  # noqa: B023
        assert len(written(talk, host, Generation)) == 1


@pytest.mark.parametrize("compares", [False, True])
async def test_a_request_that_a_twin_sealed_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, compares: bool
):
    """Also where the seal comes while the logs are compared."""
    async with twins(tmp_path) as (made, one, two):
        talk = await made.talk("one")
        await talk.say("Name a colour.")
        with structlog.testing.capture_logs() as logs:
            answering_late(one, two, logs, monkeypatch)
            with rendering_held_up(two), monkeypatch.context() as patch:
                with rendering_held_up(one):
                    request = await talk.request(tokens=3)
                    await until_waiting(two)  # else it may learn of both at once
                if compares:
                    patch.setattr(two.host, "_is_synchronized", lambda _conversation: False)
                order = two.replica.shelf[talk.id].order
                assert await two.replica.wait_for(lambda: request in order.seal_of, 10)
            line = await until_left(logs)
        assert (line["log_level"], "identity.key" in str(line["next_step"])) == ("error", True)
        await check_answer(talk, request, one, two)
        assert len(written(talk, one, Seal)) == 1


async def test_a_twin_s_seal_that_is_not_durable_yet_is_known_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with twins(tmp_path) as (made, one, two):
        talk = await made.talk("one")
        await talk.say("Name a colour.")
        store, resume, is_decided = two.replica.store.append, two.handler.resume, asyncio.Event()

        async def behind_the_decision(entries, **more):
            if any(entry.header.kind == Kind.SEAL for entry in entries):
                await is_decided.wait()
            return await store(entries, **more)

        async def deciding(held, request):
            is_decided.set()
            return await resume(held, request)

        monkeypatch.setattr(two.replica.store, "append", behind_the_decision)
        monkeypatch.setattr(two.handler, "resume", deciding)
        with structlog.testing.capture_logs() as logs:
            answering_late(one, two, logs, monkeypatch)
            with rendering_held_up(two):
                with rendering_held_up(one):
                    request = await talk.request(tokens=3)
                    await until_waiting(two)  # else it may learn of both at once
                order = two.replica.shelf[talk.id].order
                await until(lambda: request in order.seal_of)
            await until_left(logs)
        await check_answer(talk, request, one, two)
        assert len(written(talk, one, Seal)) == 1


async def seal_beside(
    host: HostServer, conversation: ConversationId, body: Seal, *, wins: bool
) -> Entry:
    """Append a second seal of a request, whose id comes before that of the first one, or behind."""
    held = host.replica.shelf[conversation]
    first = held.order.seal_of[body.request]
    author = Author(host.replica.key, 77)
    for number in range(1_000):
        entry = author.write(
            held, body, parents=(body.request,), basis=body.prev_seal,
            salt=number.to_bytes(SALT_BYTES, "big"), time_ms=1,
        )  # fmt: skip
        if (entry.id < first) is wins:
            break
    await host.replica.append_entry(entry)
    return entry


def sealing_beside(
    one: HostServer, two: HostServer, patch: pytest.MonkeyPatch, *, wins: bool
) -> None:
    """Let the second host seal what it began before it knew of the first one's seal."""
    first, second, is_late = one.replica.append, two.replica.append, asyncio.Event()

    async def after_the_other(conversation, body, **more):
        if not isinstance(body, Seal):
            return await second(conversation, body, **more)
        is_late.set()
        order = two.replica.shelf[conversation].order
        assert await two.replica.wait_for(lambda: body.request in order.seal_of, 10)
        return await seal_beside(two, conversation, body, wins=wins)

    async def before_the_other(conversation, body, **more):
        if isinstance(body, Seal):
            await is_late.wait()
        return await first(conversation, body, **more)

    patch.setattr(two.replica, "append", after_the_other)
    patch.setattr(one.replica, "append", before_the_other)


async def test_a_twin_whose_seal_does_not_count_interrupts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with twins(tmp_path) as (made, one, two):
        talk = await made.talk("one")
        await talk.say("Name a colour.")
        sealing_beside(one, two, monkeypatch, wins=False)
        with structlog.testing.capture_logs() as logs:
            answering_late(one, two, logs, monkeypatch)
            request = await talk.request(tokens=3)
            await until_left(logs)
        await check_answer(talk, request, one, two)
        await until(lambda: len(written(talk, one, Seal)) == 2)


async def test_a_twin_whose_seal_counts_answers_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The first one ends its run, and says whose the request is."""
    async with twins(tmp_path) as (made, one, two):
        talk = await made.talk("one")
        await talk.say("Name a colour.")
        sealing_beside(one, two, monkeypatch, wins=True)
        with structlog.testing.capture_logs() as logs:
            request = await talk.request(tokens=3)
            answer = await talk.answer(request)
            await until_left(logs)
        assert answer.finish_reason == FinishReason.LENGTH
        await until(lambda: not one.host.running and not two.host.running)
        # Nor does a journal of the run that was in vain stay: it has tokens of an answer.
        assert journals(tmp_path) == []


async def test_a_host_that_starts_again_answers_what_it_had_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also from the hub alone: a seal that is there at the start is its own."""
    async with tiny_hosts(tmp_path) as made:
        talk = await made.talk("one")
        await talk.say("Name a colour.")
        async with made.host("one") as one:
            refused = without_room_for_answers(one, monkeypatch)
            request = await talk.request(tokens=3)
            await refused.wait()
        shutil.rmtree(tmp_path / "one" / "log")
        shutil.rmtree(tmp_path / "one" / "journal")
        async with made.host("one"):
            answer = await talk.answer(request)
        assert answer.finish_reason == FinishReason.LENGTH
