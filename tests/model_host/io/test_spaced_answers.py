"""Answers of a SentencePiece model begin with a hidden space, on a real hub and host."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replica.conversation import Outcome
from replica.log.body import FinishReason, FormatKind, LogitBias, ResponseFormat, Sampling, text_of
from tests.model_host.engine import tiny_pieces
from tests.model_host.io.held_steps import held_after
from tests.model_host.io.replaying import replay
from tests.model_host.io.tiny_hosts import TinyHosts, tiny_hosts

CHAT = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ ' ' + m['content'] + '</s>' }}"
    "{% else %}{{ '<s>in ' + m['content'] + ' in' }}{% endif %}{% endfor %}"
)
THERE = tiny_pieces.TOKENS.index("\u2581there")
FOUR = Sampling(temperature=1.0, seed=3, logit_bias=(LogitBias(THERE, 100.0),))


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[TinyHosts]:
    async with tiny_hosts(tmp_path) as hosts:
        hosts.model = tiny_pieces.write_gguf(tmp_path / "spaced.gguf", chat=CHAT)
        yield hosts


async def test_what_is_streamed_is_the_text_of_the_answer_and_a_replay_accepts_it(
    hosts: TinyHosts,
):
    async with hosts.host() as host:
        talk = await hosts.talk("one")
        await talk.say("there?")
        with held_after(1):
            request = await talk.request(sampling=FOUR, tokens=2, logprobs=1)
            assert await hosts.replica.wait_for(lambda: talk.shown(request) != "", 30)
            assert talk.shown(request) == "there"
        answer = await talk.answer(request)
        assert answer.token_ids == (THERE, THERE)
        assert text_of(answer.parts) == "there there"
        assert answer.visible_bytes == len("there there")
        more = await talk.request(sampling=FOUR, tokens=1)
        assert text_of((await talk.answer(more)).parts) == " there"
        _, stopped = await talk.ask("there?", sampling=FOUR, tokens=4, stop=(" there",))
        assert text_of(stopped.parts) == "there"
        assert stopped.finish_detail == "stop string ' there'"
        for pattern in ("there|the", " there"):
            wanted = ResponseFormat(FormatKind.REGEX, pattern)
            _, formed = await talk.ask("?", sampling=FOUR, tokens=9, response_format=wanted)
            assert formed.finish_reason == FinishReason.STOP
            assert text_of(formed.parts) == pattern.partition("|")[0]
        got = await replay(talk, host)
    assert got.receipt.outcome == Outcome.ACCEPTED
    assert got.receipt.accepted == len(got.findings) == 5
