"""Replays of honest conversations, on a real hub and host."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from model_host.errors import ReplayBusy
from replica.conversation import Cause, Finding, Outcome, ReplayMode
from replica.errors import AntiphonError
from replica.io.calls.host_calls import HostCalls
from replica.log.body import FinishReason, LogitBias, Sampling, Speaker, ToolDefinition, Tools
from replica.refusals import ArgumentInvalid, ConversationUnknown
from tests.model_host.io.held_steps import held_after
from tests.model_host.io.replaying import replay
from tests.model_host.io.served_host import ServedHost
from tests.support.talk import Talk, key_of

SEEDED = Sampling(temperature=0.9, top_p=0.95, seed=11)
PENALISED = Sampling(
    temperature=1.1, top_k=40, min_p=0.02, repetition_penalty=1.2, presence_penalty=0.3,
    frequency_penalty=0.2, penalty_window=30, seed=5, logit_bias=(LogitBias(260, 2.0),),
)  # fmt: skip


async def talk_in_many_ways(talk: Talk) -> None:
    """Ask with many settings: sampled, stopped, continued, cancelled, on branches."""
    await talk.say("Answer in one short sentence.", Speaker.SYSTEM)
    await talk.ask("What is the capital of France?", logprobs=3)
    first, _ = await talk.ask("Tell me about rivers.", sampling=SEEDED, tokens=20)
    await talk.answer(await talk.regenerate(first, sampling=PENALISED, logprobs=2))
    await talk.answer(await talk.regenerate(first, sampling=replace(SEEDED, seed=12)))
    await talk.ask("Go on.", sampling=PENALISED, tokens=24, stop=(" the", "sea"))
    await talk.ask("Name a colour: é 中 🎨.", tokens=12, output_tokens_min=6, stop_tokens=(30,))
    # The turn goes on twice after its end by length.
    await talk.ask("Count to twenty.", sampling=SEEDED, tokens=5)
    for tokens in (6, 40):
        await talk.answer(await talk.request(sampling=SEEDED, tokens=tokens))
    await talk.add(Tools((ToolDefinition("sum", "Adds.", "{}"),)))
    await talk.ask("What is 3 + 4?", tokens=16)
    await talk.say("Write a very long story about the sea.")
    request = await talk.request(tokens=400, sampling=SEEDED)
    await talk.replica.wait_for(lambda: len(talk.shown(request)) > 20, 30)
    await talk.cancel(request)
    assert (await talk.answer(request)).finish_reason == FinishReason.CANCELLED


async def test_an_honest_conversation_is_accepted_also_after_a_restore(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk_in_many_ways(talk)
        answers = [talk.held.order.answer(i) for i in talk.held.order.seal_of]
        await served.kept(talk, host, len(answers))
    async with served.host() as host:
        _, last = await talk.ask("And what else?", sampling=PENALISED, tokens=12, logprobs=1)
        assert last.usage.restored_tokens > 0
        with capture_logs() as logs:
            verified = await replay(talk, host)
        rebuilt = await replay(talk, host, ReplayMode.REBUILD)
        # Their pages are freed, and the conversation's own are as they were.
        assert (await host.thread.evict(talk.id, checkpoints=False))[0] > 0
        assert await host.thread.between_steps(lambda _e, pool, _n: pool.used_bytes) == 0
    answers.append(last)
    (line,) = [each for each in logs if each["event"] == "replayed"]
    assert (line["mode"], line["outcome"]) == ("VERIFY", "ACCEPTED")
    for got in (verified, rebuilt):
        assert got.receipt.outcome == Outcome.ACCEPTED
        assert got.receipt.accepted == len(answers) == len(got.findings)
        assert {f.cause for f in got.findings.values()} == {Cause.NONE}
    assert verified.receipt.tokens == sum(len(answer.token_ids) for answer in answers)
    assert {f.render_digest for f in verified.findings.values()} == {
        node.seal.render_digest for node in talk.held.order.nodes.values()
    }
    # No token is computed twice: the branches share what they have in common.
    contexts = {f.prompt_tokens + f.output_tokens for f in verified.findings.values()}
    assert max(contexts) < rebuilt.computed < 2 * max(contexts)
    assert sum(f.cached_tokens for f in rebuilt.findings.values()) > 100


async def test_a_replay_from_an_entry_checks_only_what_follows_it(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        first, _ = await talk.ask("Name a colour.", tokens=6)
        said = await talk.say("Name another.")
        second = await talk.request(tokens=6)
        await talk.answer(second)
        with capture_logs() as logged:
            got = await replay(talk, host, from_entry=said.id)
        (line,) = [line for line in logged if line["event"] == "replayed"]
        assert (line["mode"], line["answers"], line["outcome"]) == ("VERIFY", 1, "ACCEPTED")
        assert [*got.findings] == [talk.held.order.generation_of(second)]
        assert got.receipt.from_entry == said.id
        answer = talk.held.order.generation_of(first)
        assert len((await replay(talk, host, from_entry=answer)).findings) == 2
        with pytest.raises(ArgumentInvalid):
            await replay(talk, host, from_entry=bytes(32))


async def test_only_members_get_a_replay(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Hello.", tokens=3)
        async with HostCalls(host.address, key_of(9), host.key) as stranger:
            with pytest.raises(ConversationUnknown):
                async for _ in stranger.replay(talk.id, ReplayMode.VERIFY):
                    pass


async def test_one_replay_runs_at_a_time_and_ends_when_its_caller_leaves(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        request, _ = await talk.ask("Tell me a long story.", tokens=60, output_tokens_min=60)
        async with HostCalls(host.address, talk.replica.key, host.key) as calls:
            with held_after(0):
                events = calls.replay(talk.id, ReplayMode.VERIFY)
                await anext(events)
                with pytest.raises(AntiphonError) as refused:
                    await replay(talk, host)
                assert refused.value.reason == ReplayBusy.reason
                assert refused.value.retry_after_s
                await events.aclose()
        for _ in range(1000):
            if not host.replays.is_busy:
                break
            await host.thread.between_steps(lambda *_: None)  # behind its chunk, and its end
            await asyncio.sleep(0)
        assert not host.replays.is_busy
        assert (await replay(talk, host)).of(talk, request).outcome == Outcome.ACCEPTED


async def test_an_answer_in_progress_is_not_starved_by_a_replay(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        text = "The river runs through the valley to the sea. " * 120
        await talk.ask(text, tokens=3)
        other = await Talk.begin(served.replica, host.key)
        await other.say("Tell me a story.")
        steps, events = [], []
        with held_after(12) as goes_on:
            running = await other.request(tokens=90, output_tokens_min=90, sampling=SEEDED)
            await other.replica.wait_for(lambda: len(other.shown(running)) > 5, 30)
            async with HostCalls(host.address, talk.replica.key, host.key) as calls:
                async for event in calls.replay(talk.id, ReplayMode.VERIFY):
                    goes_on.set()
                    steps.append(host.thread.counts.batch.steps)
                    events.append(event)
        findings = [event for event in events if isinstance(event, Finding)]
        assert {finding.outcome for finding in findings} == {Outcome.ACCEPTED}
        # Chunks are short beside it, and a step lies between two of them.
        assert len(set(steps)) > 3
        assert len((await other.answer(running)).token_ids) == 90
        assert (await replay(other, host)).receipt.outcome == Outcome.ACCEPTED
