"""kill -9 of hub and host in the middle of an answer: nothing acknowledged or shown is lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from antiphon.daemons import Daemon
from replica.ids import EntryId
from replica.io.driver.replica import Replica
from replica.log.body import FinishReason, Sampling, text_of
from tests.crash.daemons import host_daemon, hub_daemon
from tests.support.talk import Talk, key_of

SEEDED = Sampling(temperature=0.9, seed=5)
TOKENS = 48
"""Of an answer, killed when a quarter is shown."""


@asynccontextmanager
async def talking(folder: Path) -> AsyncIterator[tuple[Daemon, Daemon, Talk]]:
    """Run a hub, a host and a person's replica; stop them at the end."""
    hub = hub_daemon(folder)
    address = (await hub.start()).address
    host = host_daemon(folder, address)
    try:
        key = (await host.start()).key
        async with Replica.open(folder / "replica" / "log.db", key_of(1), address) as replica:
            yield hub, host, await Talk.begin(replica, key)
    finally:
        await host.kill()
        await hub.kill()


async def some_words(talk: Talk) -> EntryId:
    """Ask for a long answer, and wait until its first words are shown."""
    await talk.say("Write a long story about the sea.")
    request = await talk.request(sampling=SEEDED, tokens=TOKENS)
    assert await talk.replica.wait_for(lambda: len(talk.shown(request)) > 40, 60)
    assert talk.held.order.answer(request) is None
    return request


async def test_a_run_cut_off_by_kill_9_resumes_with_the_same_tokens(tmp_path: Path):
    async with talking(tmp_path) as (_, host, talk):
        request = await some_words(talk)
        await host.kill()
        shown = talk.shown(request)
        await host.start()
        answer = await talk.answer(request)
        assert answer.finish_reason == FinishReason.LENGTH
        # The same run: the shown text is the beginning of the logged one.
        assert text_of(answer.parts).startswith(shown)
        assert talk.shown(request) == text_of(answer.parts)
        other = await talk.answer(await talk.regenerate(request))
        assert other.token_ids == answer.token_ids


async def test_an_answer_survives_kill_9_of_the_hub_in_its_middle(tmp_path: Path):
    async with talking(tmp_path) as (hub, _, talk):
        request = await some_words(talk)
        before = hub.ready
        await hub.kill()
        reborn = hub_daemon(tmp_path, before.address)
        assert (await reborn.start()).key == before.key
        try:
            answer = await talk.answer(request)
            assert len(answer.token_ids) == TOKENS
            assert text_of(answer.parts).startswith(talk.shown(request))
            assert await talk.replica.wait_synced(talk.id)
            assert not talk.held.order.void
        finally:
            await reborn.kill()
