"""Contexts are rendered in a thread; entries that come meanwhile count."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from model_host.io.answers import request_handler
from model_host.io.server import HostServer
from replica.conversation import Conversation, Sealable
from replica.ids import EntryId
from replica.io import now_ms
from replica.log.body import (
    FinishReason,
    Grant,
    Member,
    Message,
    Revocation,
    Role,
    Speaker,
    ToolCall,
    ToolDefinition,
    Tools,
)
from tests.model_host.io.served_host import ServedHost
from tests.support.callers import until
from tests.support.talk import Talk, key_of
from tests.support.writers import Writer
from tests.support.writers import said as by


@contextmanager
def rendering_held_up(host: HostServer) -> Iterator[None]:
    """Occupy the rendering thread for the block."""
    free = threading.Event()
    holding = asyncio.create_task(host.handler.rendering.run(free.wait, b"another"))
    try:
        yield
    finally:
        free.set()
        holding.add_done_callback(asyncio.Task.result)


async def until_waiting(host: HostServer) -> None:
    """Wait until a request waits for the rendering thread."""
    async with asyncio.timeout(10):
        while not host.handler.rendering.waiting:  # noqa: ASYNC110  # no event says so
            await asyncio.sleep(0)


async def test_a_cancel_that_comes_while_a_context_is_rendered_counts(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.say("Name a colour.")
        with rendering_held_up(host):
            request = await talk.request(tokens=3)
            await until_waiting(host)
            await talk.cancel(request)
            here = host.replica.shelf[talk.id]
            await host.replica.wait_for(lambda: here.order.is_cancelled(request), 10)
        answer = await talk.answer(request)
    assert answer.finish_reason == FinishReason.CANCELLED
    assert request not in talk.held.order.seal_of


async def test_a_cancel_that_comes_between_a_decision_and_its_task_counts(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.say("Name a colour.")
        begin, begun = host.handler.begin, list[EntryId]()

        async def late(held: Conversation, ready: Sealable) -> bool:
            if not begun:  # as if the loop had handled the CANCEL before this task
                begun.append(ready.request)
                await talk.cancel(ready.request)
                cancelled = held.order.is_cancelled
                await host.replica.wait_for(lambda: cancelled(ready.request), 10)
            return await begin(held, ready)

        monkeypatch.setattr(host.handler, "begin", late)
        request = await talk.request(tokens=3)
        answer = await talk.answer(request)
    assert answer.finish_reason == FinishReason.CANCELLED
    assert request not in talk.held.order.seal_of


async def test_a_request_whose_time_ends_while_its_context_is_rendered_is_not_sealed(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.say("Name a colour.")
        with rendering_held_up(host):
            request = await talk.request(tokens=3, answer_by_ms=now_ms() + 60_000)
            await until_waiting(host)
            monkeypatch.setattr(request_handler, "now_ms", lambda: now_ms() + 61_000, raising=False)
        answer = await talk.answer(request)
    assert answer.finish_reason == FinishReason.REFUSED
    assert answer.finish_detail.startswith("REQUEST_EXPIRED: ")
    assert request not in talk.held.order.seal_of


async def test_a_request_that_waits_for_results_is_refused_at_its_time(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.add(Tools((ToolDefinition("sum", "Adds.", "{}"),)))
        await talk.ask("Hello.", tokens=1)
        await talk.add(Message(Speaker.ASSISTANT, (ToolCall("c1", "sum", "{}"),)))
        request = await talk.request(tokens=2, answer_by_ms=now_ms() + 500)
        answer = await talk.answer(request)  # nothing else happens that would wake the host
    assert answer.finish_detail.startswith("REQUEST_EXPIRED: ")


async def test_the_log_of_a_wait_for_results_has_no_words_of_a_member(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("hi", tokens=2)
        with capture_logs() as logs:
            await talk.add(Message(Speaker.ASSISTANT, (ToolCall("my PIN is 4711", "sum", "{}"),)))
            await talk.request(tokens=2)
            await until(lambda: any(line["event"] == "waiting for results" for line in logs))
    assert "4711" not in str(logs)


async def test_a_grant_that_comes_while_a_context_is_rendered_is_named_by_the_seal(
    served: ServedHost,
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.say("Name a colour.")
        with rendering_held_up(host):
            request = await talk.request(tokens=3)
            await until_waiting(host)
            public = key_of(9).public_key().public_bytes_raw()
            grant = await talk.replica.append(
                talk.id, Member(Grant(public, Role.READER)), parents=(EntryId(talk.id),)
            )
            here = host.replica.shelf[talk.id]
            await host.replica.wait_for(lambda: grant.id in here.log.entries, 10)
        await talk.answer(request)
        seal = talk.held.order.nodes[talk.held.order.seal_of[request]].seal
    assert grant.id in seal.membership_heads


async def test_a_revocation_that_comes_while_a_context_is_rendered_keeps_the_words_out(
    served: ServedHost,
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        other, log = Writer(b"other"), talk.held.log
        genesis = EntryId(talk.id)
        grant = Member(Grant(other.public, Role.WRITER))
        granted = await talk.replica.append(talk.id, grant, parents=(genesis,))
        said = other.write(talk.id, by("Say nothing."), parents=[log.entries[genesis]])
        await talk.replica.append_entry(said)
        with rendering_held_up(host):
            request = await talk.request(tokens=3)
            await until_waiting(host)
            revocation = Member(Revocation(other.public))
            revoked = await talk.replica.append(talk.id, revocation, parents=(granted.id,))
            here = host.replica.shelf[talk.id]
            await host.replica.wait_for(lambda: revoked.id in here.log.entries, 10)
        await talk.answer(request)
        seal = talk.held.order.nodes[talk.held.order.seal_of[request]].seal
        assert said.id in talk.held.log.entries[request].header.parents
    assert said.id not in seal.entries
