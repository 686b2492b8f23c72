"""Guessed tokens change no output, whatever is guessed, beside whatever else (spec/07-host §5)."""

import random
from dataclasses import replace

import pytest

from model_host.batching.batcher import Batcher
from model_host.batching.job import Chosen, Job
from model_host.sampling import SamplerState
from replica.log.body import FinishReason, Sampling
from tests.model_host.batching.test_batcher import ASKED, A, B, Scene, text
from tests.model_host.batching.test_batcher_grammar import (
    END,
    PATTERNS,
    Words,
    alone,
    constrained,
    grammar_of,
)
from tests.model_host.number_engine import VOCAB, answer

WORDS = 3
"""With so few words, guesses are often right."""


class GuessingScene(Scene):
    """A batcher over an engine of few words, where a row costs no time."""

    def __init__(
        self, slabs: int = 40, tails: int = 8, sequences_max: int = 8, *, guesses_max: int = 7
    ) -> None:
        super().__init__(slabs, tails, sequences_max, guesses_max=guesses_max)
        self.engine.words = WORDS


def words(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(WORDS), k=count)


def is_right(job: Job) -> bool:
    prompt = list(job.run.plan.prompt)
    return job.run.token_ids == answer(prompt, job.run.plan.output_tokens_max, WORDS)


def test_guesses_are_accepted_and_the_answer_is_that_without():
    scene = GuessingScene()
    job = scene.add(words(100, 1), 200)
    scene.run()
    assert is_right(job)
    counters = scene.batcher.counters
    assert 0 < counters.guesses_accepted < counters.guesses
    assert len(scene.engine.steps) == 200 - counters.guesses_accepted
    assert counters.rows == 100 + 199 - counters.guesses_accepted + counters.guesses


@pytest.mark.parametrize("prompt", [1, 2, 500, 505, 511, 512, 1_020])
def test_guesses_across_the_end_of_a_slab_are_kept_and_discarded(prompt: int):
    scene = GuessingScene()
    jobs = [scene.add(words(prompt, n), 60, conversation=n) for n in range(2)]
    scene.run()
    assert all(map(is_right, jobs))
    assert scene.batcher.counters.guesses_accepted > 0


def test_the_pages_of_an_answer_with_guesses_are_those_without():
    scene = GuessingScene()
    first = scene.add(words(300, 1), 400)
    scene.run()
    again = scene.add([*first.ids, 1, 2], 30)
    scene.run()
    assert scene.of(again)[0].cached_tokens == len(first.ids) - 1
    assert is_right(again)


def test_more_than_four_runs_are_not_guessed():
    scene = GuessingScene()
    jobs = [scene.add(words(30, n), 40, conversation=n) for n in range(5)]
    scene.run()
    assert all(map(is_right, jobs))
    # All end together: at no time did fewer decode.
    assert scene.batcher.counters.guesses == 0


def test_a_run_is_not_guessed_beside_a_prompt():
    scene = GuessingScene()
    scene.add(words(30, 1), 80, conversation=1)
    for _ in range(3):
        scene.step()
    before = scene.batcher.counters.guesses
    scene.add(words(2_000, 2), 1, conversation=2)
    steps = len(scene.engine.steps)
    while scene.batcher.counters.guesses == before:
        scene.step()
    assert sum(map(sum, scene.engine.steps[steps:])) > 2_000


def test_an_engine_that_is_not_bitwise_gets_no_guesses():
    scene = GuessingScene()
    scene.engine.bitwise = False
    scene.batcher = Batcher(scene.engine, scene.pool, scene.pages, scene.clock)
    job = scene.add(words(30, 1), 60)
    scene.run()
    assert is_right(job)
    assert scene.batcher.counters.guesses == 0


def test_no_more_is_guessed_than_the_answer_may_have():
    scene = GuessingScene()
    jobs = [scene.add([1] * 50, count, conversation=count) for count in (1, 2, 3)]
    scene.run()
    assert all(map(is_right, jobs))
    for steps in scene.engine.steps[1:]:
        assert max(steps) <= 2


def test_no_run_gives_up_its_pages_for_a_guess():
    plain, guessing = (GuessingScene(slabs=5, tails=4, guesses_max=n) for n in (0, 7))
    for scene in (plain, guessing):
        jobs = [scene.add(words(760, n), 300, conversation=n) for n in range(3)]
        scene.run()
        assert all(map(is_right, jobs))
    assert guessing.batcher.counters.preemptions <= plain.batcher.counters.preemptions
    assert guessing.batcher.counters.guesses_accepted > 0


@pytest.mark.parametrize("pattern", PATTERNS)
def test_constrained_runs_are_guessed_within_their_grammar(pattern: str):
    scene = GuessingScene()
    scene.engine.words = VOCAB
    job = scene.job(text(40, 3), 60)
    job.run.grammar = grammar_of(pattern)
    job.run.sampler_state = SamplerState(ASKED, vocabulary=VOCAB, end_ids=(END,))
    scene.batcher.add(job)
    scene.run()
    assert job.run.token_ids == alone(job, pattern)


def test_a_grammar_that_gets_stuck_behind_right_guesses_keeps_the_tokens_before():
    scene = GuessingScene()
    job = constrained(scene, "(ab){8}\x04c", 1)
    scene.run()
    assert scene.batcher.counters.guesses_accepted > 0
    assert job.run.token_ids == Words().encode("ab" * 8)
    assert job.run.finished is not None
    assert job.run.finished[0] is FinishReason.INTERRUPTED


def drawn(guesses: int, sampling: Sampling, logprobs: int) -> tuple[list, int]:
    """Return the events of three runs, and how many guesses were accepted."""
    scene = GuessingScene(guesses_max=guesses)
    asked = replace(
        ASKED, sampling=sampling, logprobs=logprobs, stop_tokens=(WORDS - 1,), output_tokens_min=90
    )
    jobs = []
    for n in range(3):
        job = scene.job(words(50 + n, n), 150, conversation=n)
        job.run.plan = replace(job.run.plan, request=asked)
        job.run.sampler_state = SamplerState(
            asked, vocabulary=VOCAB, context=job.run.plan.prompt, end_ids=(90,)
        )
        scene.batcher.add(job)
        jobs.append(job)
    scene.run()
    chosen = [[e for e in scene.of(job) if isinstance(e, Chosen)] for job in jobs]
    ends = [(job.run.finished, job.run.visible, job.run.logprobs) for job in jobs]
    return [*chosen, *ends], scene.batcher.counters.guesses_accepted


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.2, seed=7),
        Sampling(temperature=0.3, seed=8, top_k=5, top_p=0.9),
        Sampling(temperature=0.2, seed=9, repetition_penalty=1.1, penalty_window=20),
        Sampling(presence_penalty=0.2, frequency_penalty=0.01),
    ],
)
def test_drawn_tokens_and_their_log_probabilities_are_those_without_guesses(sampling: Sampling):
    without, none = drawn(0, sampling, 3)
    guessed, some = drawn(7, sampling, 3)
    assert guessed == without
    assert none == 0 < some


@pytest.mark.parametrize("seed", range(12))
def test_any_mix_gives_the_tokens_of_each_run_alone(seed: int):
    dice = random.Random(seed)
    scene = GuessingScene(dice.choice((4, 6, 12)), dice.choice((1, 2, 6)), dice.choice((2, 3, 8)))
    stems = [words(dice.choice((5, 300, 505, 900)), n) for n in range(3)]
    jobs: list[Job] = []
    waiting = 12
    while waiting or not scene.batcher.is_idle:
        if waiting and dice.random() < 0.1:
            waiting -= 1
            prompt = [*dice.choice(stems), *words(dice.randrange(1, 80), dice.randrange(9))]
            owner, number = dice.choice((A, B)), dice.randrange(4)
            jobs.append(scene.add(prompt, dice.randrange(1, 90), owner=owner, conversation=number))
        if jobs and dice.random() < 0.02:
            dice.choice(jobs).cancel()
        scene.step()
    for job in jobs:
        assert job.run.finished is not None
        assert job.run.token_ids == answer(job.run.plan.prompt, len(job.run.token_ids), WORDS)
