"""What a request can ask of the sampler, on a real hub and host."""

from dataclasses import replace

import pytest

from model_host.generation import runner
from model_host.refusals import SamplingInvalid, StopInvalid
from replica.log import codec
from replica.log.body import FinishReason, LogitBias, Sampling, text_of
from tests.model_host.io.held_steps import held_after
from tests.model_host.io.served_host import ServedHost
from tests.support.talk import Talk

GREEDY = Sampling()


QUESTION = "What is the capital of France? Answer in one word."


async def test_an_answer_goes_on_until_its_least_length(served_real: ServedHost):
    async with served_real.host() as host:
        talk = await Talk.begin(served_real.replica, host.key)
        request, short = await talk.ask(QUESTION, tokens=60)
        assert short.finish_reason == FinishReason.STOP
        least = len(short.token_ids) + 8
        longer = await talk.answer(await talk.regenerate(request, output_tokens_min=least))
        assert len(longer.token_ids) > least
        assert longer.token_ids[: len(short.token_ids) - 1] == short.token_ids[:-1]
        assert not host.offer.stop_ids.intersection(longer.token_ids[:least])


async def test_a_stop_string_does_not_end_an_answer_before_its_least_length(
    served_real: ServedHost,
):
    async with served_real.host() as host:
        talk = await Talk.begin(served_real.replica, host.key)
        request, short = await talk.ask(QUESTION, tokens=60, stop=("Paris",))
        assert short.finish_detail == "stop string 'Paris'"
        least = len(short.token_ids) + 2
        longer = await talk.answer(await talk.regenerate(request, output_tokens_min=least))
        assert len(longer.token_ids) > least
        assert "Paris" in text_of(longer.parts)


async def test_a_continued_answer_counts_its_least_length_from_the_start_of_the_turn(
    served: ServedHost,
):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        whole, in_one_go = await talk.ask(QUESTION, tokens=40, output_tokens_min=12)
        part = await talk.regenerate(whole, output_tokens_max=9)
        first = await talk.answer(part)
        assert first.finish_reason == FinishReason.LENGTH
        node = talk.held.order.nodes[talk.held.order.seal_of[part]]
        body = replace(talk.held.log.body(part), output_tokens_max=31)
        rest = await talk.replica.append(talk.id, body, parents=(node.generation,), basis=node.id)
        second = await talk.answer(rest.id)
    assert (*first.token_ids, *second.token_ids) == in_one_go.token_ids


async def test_a_stop_token_ends_the_answer_and_is_not_shown(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        request, whole = await talk.ask("Name three colours.", tokens=12)
        stop = whole.token_ids[5]
        assert stop not in whole.token_ids[:5]
        answer = await talk.answer(await talk.regenerate(request, stop_tokens=(stop,)))
        assert answer.token_ids == whole.token_ids[:6]
        assert (answer.finish_reason, answer.finish_detail) == (
            FinishReason.STOP,
            f"stop token {stop}",
        )
        shown = host.offer.tokenizer.decode_bytes(answer.token_ids[:-1]).decode()
        assert text_of(answer.parts) == shown
        # The conversation goes on, with the token in its context.
        _, more = await talk.ask("And a fourth.", tokens=3)
        assert more.usage.prompt_tokens > whole.usage.prompt_tokens


async def test_a_bias_bans_a_token_and_favours_another(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        request, plain = await talk.ask("Name a colour.", tokens=6)
        banned = LogitBias(plain.token_ids[0], -100.0)
        other = await talk.answer(
            await talk.regenerate(request, sampling=replace(GREEDY, logit_bias=(banned,)))
        )
        assert banned.token_id not in other.token_ids
        favoured = LogitBias(1234, 100.0)
        same = await talk.answer(
            await talk.regenerate(request, sampling=replace(GREEDY, logit_bias=(favoured,)))
        )
        assert set(same.token_ids) == {1234}


@pytest.mark.parametrize(
    ("refusal", "fields"),
    [
        (StopInvalid, {"stop_tokens": (49_152,)}),
        (SamplingInvalid, {"sampling": Sampling(logit_bias=(LogitBias(49_152, 1.0),))}),
    ],
)
async def test_a_token_outside_the_vocabulary_is_refused(served: ServedHost, refusal, fields):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        _, answer = await talk.ask("Hello.", **fields)
        assert answer.finish_reason == FinishReason.REFUSED
        assert answer.finish_detail.startswith(f"{refusal.reason}: ")


async def test_log_probabilities_are_recorded_at_each_token(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        request, plain = await talk.ask("Name a colour.", tokens=6)
        answer = await talk.answer(await talk.regenerate(request, logprobs=3))
    assert plain.logprobs == ()
    assert answer.token_ids == plain.token_ids
    assert len(answer.logprobs) == len(answer.token_ids)
    for token_id, recorded in zip(answer.token_ids, answer.logprobs, strict=True):
        assert recorded.top_ids[0] == token_id  # the choice is greedy
        assert recorded.logprob == recorded.top_logprobs[0] <= 0
        assert sorted(recorded.top_logprobs, reverse=True) == list(recorded.top_logprobs)


async def test_a_resumed_answer_has_the_log_probabilities_of_all_its_tokens(
    served: ServedHost,
):
    warm = Sampling(temperature=0.9, seed=5)
    with held_after(12):
        async with served.host() as host:
            talk = await Talk.begin(served.replica, host.key)
            await talk.say("Write a very long story about the sea.")
            request = await talk.request(
                tokens=36, output_tokens_min=36, sampling=warm, logprobs=20
            )
            assert await served.replica.wait_for(lambda: len(talk.tokens(request)) > 8, 30)
    assert talk.held.order.answer(request) is None
    async with served.host():
        resumed = await talk.answer(request)
        whole = await talk.answer(await talk.regenerate(request))
    assert len(resumed.logprobs) == len(resumed.token_ids) == 36
    assert (resumed.token_ids, resumed.logprobs) == (whole.token_ids, whole.logprobs)


async def test_log_probabilities_count_toward_the_size_of_an_answer(
    served: ServedHost, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runner, "BODY_BYTES_MAX", 4096 + 1000)
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        _, answer = await talk.ask("Write a story about the sea.", tokens=100, logprobs=20)
    assert answer.finish_reason == FinishReason.LENGTH
    body = codec.encode_body(answer)
    assert 3 <= len(answer.token_ids) <= 6
    assert len(body) < 4096 + 1000
    assert len(codec.encode_body(replace(answer, logprobs=()))) < len(body) - 400


async def test_several_answers_are_several_requests(served: ServedHost):
    async with served.host() as host:
        talk = await Talk.begin(served.replica, host.key)
        said = await talk.say("Tell me about rivers.")
        warm = [Sampling(temperature=1.5, seed=seed) for seed in (1, 2, 2, 3)]
        requests = [await talk.request(at=said.id, sampling=warm[0])]
        # A short prompt is cheaper to compute again than to wait for.
        await talk.answer(requests[0])
        requests += [await talk.request(at=said.id, sampling=each) for each in warm[1:]]
        answers = [await talk.answer(request) for request in requests]
    assert answers[1].token_ids == answers[2].token_ids
    assert len({answer.token_ids for answer in answers}) == 3
    nodes = [talk.held.order.nodes[talk.held.order.seal_of[request]] for request in requests]
    assert {node.parent for node in nodes} == {None}
    assert len({node.seal.entries[:-1] for node in nodes}) == 1
    # The common context is computed once.
    assert [a.usage.cached_tokens for a in answers[1:]] == [answers[0].usage.prompt_tokens - 1] * 3
