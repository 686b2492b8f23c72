"""Answers that their host lied about are found at the exact place, with the cause."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from bench.lying_host import Liar, with_another_template, with_other_weights, with_token
from model_host.engine.torch_engine import TorchEngine
from model_host.io.server import HostServer
from replica.conversation import NO_TOKEN, Cause, Outcome
from replica.ids import Digest, EntryId
from replica.log.body import (
    FinishReason,
    FormatKind,
    Generation,
    ResponseFormat,
    Sampling,
    Text,
    TokenLogprobs,
    Usage,
    text_of,
)
from tests.model_host.io.held_steps import held_after
from tests.model_host.io.replaying import Replayed, replay
from tests.model_host.io.served_host import ServedHost, without_room_for_answers
from tests.support.talk import Talk

SEEDED = Sampling(temperature=0.9, top_p=0.95, seed=11)
OTHER = Digest(b"other".ljust(32, b"."))
LIES = 12


class Told(NamedTuple):
    """An honest answer to lie about, with a liar, while the host is stopped."""

    talk: Talk
    request: EntryId
    honest: Generation
    liar: Liar
    served: ServedHost

    async def replay(self, engine: TorchEngine | None = None) -> Replayed:
        """Publish the lies, start the host, and let it verify the conversation."""
        await self.liar.publish()
        async with self.served.host(engine) as host:
            return await replay(self.talk, host)


@pytest.fixture
async def told(served: ServedHost) -> AsyncIterator[Told]:
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Name a river.", tokens=6)
        request, honest = await talk.ask(
            "Tell me about it.", sampling=SEEDED, tokens=30, output_tokens_min=30, logprobs=1
        )
        assert len(honest.token_ids) == 30
        liar = Liar(talk.replica, talk.held, host.replica.key, host.offer)
    yield Told(talk, request, honest, liar, served)


async def test_each_changed_token_is_found_at_its_index(told: Told):
    walk, expected = random.Random(7), {}
    for _ in range(LIES):
        index = walk.randrange(30)
        token_id = walk.randrange(1000, 40_000)
        assert token_id != told.honest.token_ids[index]
        changed = with_token(told.honest, index, token_id)
        expected[told.liar.answer(told.request, lambda _, lie=changed: lie)] = index
    foreign = with_token(told.honest, 9, 2**31)
    expected[told.liar.answer(told.request, lambda _: foreign)] = 9
    same = told.liar.answer(told.request, lambda honest: honest)
    got = await told.replay()
    for lie, index in expected.items():
        found = got.findings[lie]
        assert (found.outcome, found.cause) == (Outcome.DIFFERS, Cause.TOKEN)
        assert found.token_index == index
    assert got.findings[same].outcome == Outcome.ACCEPTED
    assert got.receipt.differing == len(expected)
    assert got.receipt.outcome == Outcome.DIFFERS
    assert got.receipt.first in expected
    assert got.receipt.first_token == expected[got.receipt.first]


async def test_each_other_statement_of_an_answer_is_checked(told: Told):
    honest, liar = told.honest, told.liar
    usage, words = honest.usage, honest.parts
    (record, *records) = honest.logprobs
    short = replace(
        honest, token_ids=honest.token_ids[:20], logprobs=honest.logprobs[:20],
        usage=replace(usage, output_tokens=20),
    )  # fmt: skip
    more = (*honest.token_ids, honest.token_ids[0])
    louder = TokenLogprobs(record.logprob + 0.5, record.top_ids, record.top_logprobs)
    lies = {
        Cause.LOGPROBS: (replace(honest, logprobs=(louder, *records)), 0),
        Cause.TEXT: (replace(honest, parts=(*words, Text("!"))), NO_TOKEN),
        Cause.USAGE: (replace(honest, usage=replace(usage, prompt_tokens=3)), NO_TOKEN),
        Cause.ENDING: (replace(honest, finish_reason=FinishReason.STOP), 29),
    }
    made = {
        liar.answer(told.request, lambda _, one=lie: one): (cause, index)
        for cause, (lie, index) in lies.items()
    }
    cut = replace(short, finish_reason=FinishReason.CANCELLED)
    made[liar.answer(told.request, lambda _: cut)] = (Cause.ENDING, 19)
    longer = replace(honest, token_ids=more, logprobs=(*honest.logprobs, record))
    made[liar.answer(told.request, lambda _: longer)] = (Cause.ENDING, 30)
    drafted = liar.answer(told.request, lambda _: honest, streamed=False)
    made[drafted] = (Cause.DRAFTS, NO_TOKEN)
    sealed = liar.answer(
        told.request, lambda _: honest, seal=lambda seal: replace(seal, render_digest=OTHER)
    )
    made[sealed] = (Cause.RENDERING, NO_TOKEN)
    # The request names another seed than the host drew with.
    seeded = liar.answer(told.request, lambda _: honest, sampling=replace(SEEDED, seed=12))
    greedy = liar.answer(told.request, lambda _: honest, sampling=Sampling())
    got = await told.replay()
    for lie, (cause, index) in made.items():
        found = got.findings[lie]
        assert (found.outcome, found.cause, found.token_index) == (
            Outcome.DIFFERS, cause, index
        ), found  # fmt: skip
    for lie in (seeded, greedy):
        assert got.findings[lie].cause == Cause.TOKEN
        assert got.findings[lie].differing_tokens > 1


async def test_statements_are_checked_where_no_rendering_recipe_is_stated(told: Told):
    honest, liar = told.honest, told.liar
    forged = {"parts": (Text("I confess."),), "visible_bytes": 10}
    short = replace(
        honest, token_ids=honest.token_ids[:20], logprobs=honest.logprobs[:20],
        usage=replace(honest.usage, output_tokens=20), finish_reason=FinishReason.STOP,
    )  # fmt: skip
    closed = replace(honest, sampler_digest=None, finish_reason=FinishReason.INTERRUPTED)
    lies = {
        replace(honest, **forged): Cause.TEXT,
        short: Cause.ENDING,
        replace(closed, **forged): Cause.TEXT,
        replace(closed, token_ids=(), logprobs=(), usage=Usage(), **forged): Cause.TEXT,
    }
    made = {}
    for lie, cause in lies.items():
        unstated = replace(lie, render_recipe_digest=None)
        made[liar.answer(told.request, lambda _, one=unstated: one)] = cause
    true = liar.answer(told.request, lambda _: replace(honest, render_recipe_digest=None))
    got = await told.replay()
    for lie, cause in made.items():
        assert (got.findings[lie].outcome, got.findings[lie].cause) == (Outcome.DIFFERS, cause)
    assert got.findings[true].outcome == Outcome.UNDECIDED
    assert got.receipt.differing == len(made)


async def test_what_this_host_cannot_judge_is_not_called_changed(told: Told):
    honest, liar = told.honest, told.liar
    changed = with_token(honest, 4, 1234)
    stopped = replace(
        changed, finish_reason=FinishReason.INTERRUPTED, finish_detail="another profile",
        sampler_digest=None, render_recipe_digest=None, parts=(), visible_bytes=0, logprobs=(),
    )  # fmt: skip
    numerics = liar.answer(told.request, lambda _: replace(honest, numerics_class=OTHER))
    sampling = liar.answer(told.request, lambda _: replace(honest, sampler_digest=OTHER))
    closed = liar.answer(told.request, lambda _: stopped)
    weights = liar.answer(
        told.request, lambda _: changed, seal=lambda seal: replace(seal, profile=OTHER)
    )
    renamed = liar.answer(
        told.request, lambda _: honest, seal=lambda seal: replace(seal, profile=OTHER)
    )
    template = liar.answer(
        told.request,
        lambda _: honest,
        seal=lambda seal: replace(seal, profile=OTHER, render_digest=OTHER),
    )
    got = await told.replay()

    def verdict(answer: EntryId) -> tuple[int, int, int]:
        found = got.findings[answer]
        return found.outcome, found.cause, found.token_index

    undecided = Outcome.UNDECIDED
    assert verdict(sampling) == (undecided, Cause.SAMPLING_UNKNOWN, NO_TOKEN)
    assert verdict(weights) == (undecided, Cause.OTHER_WEIGHTS, 4)
    assert verdict(template) == (undecided, Cause.OTHER_TEMPLATE, NO_TOKEN)
    assert verdict(renamed) == (Outcome.ACCEPTED, Cause.NONE, NO_TOKEN)
    assert verdict(closed) == (undecided, Cause.SAMPLING_UNKNOWN, NO_TOKEN)
    assert verdict(numerics) == (undecided, Cause.OTHER_NUMERICS, NO_TOKEN)
    scored = got.findings[sampling].logprobs
    assert scored == tuple(one.logprob for one in honest.logprobs)
    assert (got.receipt.outcome, got.receipt.differing) == (undecided, 0)


async def test_a_host_with_other_weights_or_template_says_so(told: Told):
    answers = [told.talk.held.order.generation_of(i) for i in told.talk.held.order.seal_of]
    got = await told.replay(with_other_weights(told.served.engine))
    for answer in answers:
        found = got.findings[answer]
        assert (found.outcome, found.cause) == (Outcome.UNDECIDED, Cause.OTHER_WEIGHTS)
        assert found.token_index >= 0
    assert got.receipt.outcome == Outcome.UNDECIDED
    got = await told.replay(with_another_template(told.served.engine))
    for answer in answers:
        found = got.findings[answer]
        assert (found.outcome, found.cause) == (Outcome.UNDECIDED, Cause.OTHER_TEMPLATE)
    first = got.findings[answers[0]]
    assert first.entry in told.talk.held.log.entries


async def test_on_another_numerics_class_each_token_gets_its_log_probability(told: Told):
    # The numbers are the same here, so that they can be compared with those recorded.
    got = await told.replay(replace(told.served.engine, numerics_class=bytes(OTHER)))
    found = got.of(told.talk, told.request)
    assert (found.outcome, found.cause) == (Outcome.UNDECIDED, Cause.OTHER_NUMERICS)
    assert found.checked_tokens == 0
    assert found.logprobs == tuple(one.logprob for one in told.honest.logprobs)


def lacking(host: HostServer, talk: Talk, entry: EntryId) -> None:
    """Let the host hold an entry without its body."""
    log = host.replica.shelf[talk.id].log
    log.entries[entry] = replace(log.entries[entry], body=None)
    log._bodies.forget(entry)


async def test_a_missing_body_is_named_and_stops_its_own_branch_alone(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        said = await talk.say("Name a colour.")
        first = await talk.request(tokens=5)
        await talk.answer(first)
        second, _ = await talk.ask("Another.", tokens=5)
        await replay(talk, host)
        answer = talk.held.order.generation_of(second)
        lacking(host, talk, answer)
        got = await replay(talk, host)
        assert got.of(talk, first).outcome == Outcome.ACCEPTED
        assert got.of(talk, second).cause == Cause.PART_MISSING
        lacking(host, talk, said.id)
        got = await replay(talk, host)
        for request in (first, second):
            found = got.of(talk, request)
            assert (found.outcome, found.cause) == (Outcome.UNDECIDED, Cause.PART_MISSING)
        assert got.of(talk, first).entry == said.id


async def test_runs_that_a_crash_cut_off_are_accepted_if_their_recipes_are_stated(
    served: ServedHost,
):
    other_class = replace(served.engine, numerics_class=bytes(OTHER))
    closed_by = [other_class, with_another_template(served.engine), served.engine]
    requests = []
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        await talk.ask("Name a river.", tokens=4)
    for closing in closed_by:
        with held_after(8):
            async with served.host():
                await talk.say("Tell me a long story about it.")
                requests.append(
                    await talk.request(tokens=30, output_tokens_min=30, sampling=SEEDED, logprobs=1)
                )
                assert await talk.replica.wait_for(lambda: len(talk.shown(requests[-1])) > 10, 60)
        async with served.host(closing):
            await talk.answer(requests[-1])
    answers = [talk.held.order.answer(request) for request in requests]
    stopped, whole = FinishReason.INTERRUPTED, FinishReason.LENGTH
    assert [answer.finish_reason for answer in answers] == [stopped, stopped, whole]
    async with served.host() as host:
        got = await replay(talk, host)
    found = [got.of(talk, request) for request in requests]
    accepted = Outcome.ACCEPTED
    assert [one.outcome for one in found] == [accepted, Outcome.UNDECIDED, accepted]
    assert [one.cause for one in found] == [Cause.NONE, Cause.SAMPLING_UNKNOWN, Cause.NONE]
    assert found[0].checked_tokens == len(answers[0].token_ids) > 0
    assert (found[1].checked_tokens, found[2].checked_tokens) == (0, 30)


async def test_a_form_that_was_complete_when_its_host_stopped_is_no_difference(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        refused = without_room_for_answers(host, monkeypatch)
        await talk.say("Is the sky blue?")
        wanted = ResponseFormat(FormatKind.REGEX, "yes|no")
        request = await talk.request(tokens=50, response_format=wanted)
        await asyncio.wait_for(refused.wait(), 60)
    other_class = replace(served.engine, numerics_class=bytes(OTHER))
    async with served.host(other_class) as host:
        answer = await talk.answer(request)
        assert text_of(answer.parts) in ("yes", "no")
        there = (await replay(talk, host)).of(talk, request)
    async with served.host() as host:
        here = (await replay(talk, host)).of(talk, request)
    assert (there.outcome, there.cause) == (Outcome.UNDECIDED, Cause.OTHER_NUMERICS)
    assert (here.outcome, here.cause) == (Outcome.ACCEPTED, Cause.NONE)
    assert here.checked_tokens == len(answer.token_ids) > 0


async def test_an_answer_that_had_filled_its_context_when_its_host_stopped_keeps_its_end(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    config = replace(served.engine.config, context_tokens=60)
    short = replace(served.engine, model=replace(served.engine.model, config=config))
    async with served.host(short) as host:
        talk = await Talk.begin(served.replica, host.key)
        refused = without_room_for_answers(host, monkeypatch)
        await talk.say("Tell me a story.")
        request = await talk.request(tokens=0, output_tokens_min=100)
        await asyncio.wait_for(refused.wait(), 60)
    async with served.host(replace(short, numerics_class=bytes(OTHER))):
        answer = await talk.answer(request)
    assert answer.finish_reason == FinishReason.CONTEXT_LIMIT
    assert 0 < len(answer.token_ids) < 60
    async with served.host(short) as host:
        assert (await replay(talk, host)).of(talk, request).outcome == Outcome.ACCEPTED
