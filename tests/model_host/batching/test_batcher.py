"""Many runs computed together: the same tokens as alone, whatever the memory (spec/07-host §5)."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from model_host.batching.batcher import Batcher
from model_host.batching.job import Chosen, Computed, Ended, Found, Job
from model_host.errors import CacheBudgetExceeded
from model_host.generation import Plan, Run
from model_host.kv.memory import SLAB_TOKENS
from model_host.kv.page_pool import PagePool
from model_host.rendering import Context
from model_host.sampling import SamplerState
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.log.body import FinishReason, Request, Sampling, Seal
from tests.model_host.kv.naive_pages import NaivePages
from tests.model_host.kv.paged import SLAB_BYTES
from tests.model_host.number_engine import VOCAB, NumberEngine, answer

REQUEST, ANY = EntryId(b"r" * 32), Digest(bytes(32))
SEAL = Seal(REQUEST, None, (REQUEST,), ANY, ANY, ANY, (1,), ())
ASKED = Request(PublicKey(b"h" * 32), Sampling())
PLAN = Plan(ConversationId(b"c" * 32), REQUEST, ASKED, SEAL, Context((), ANY), 1)
DOMAIN, NAMESPACE = b"d" * 32, b"n" * 32
A, B = b"a" * 32, b"b" * 32


class Silent:
    """Visible text of tokens without any."""

    stopped_by = None
    calls = ()
    hidden_bytes = 0

    def push(self, token_id: int) -> bytes:
        return b"."

    def finish(self, *, can_continue: bool) -> bytes:
        return b""


def text(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(VOCAB), k=count)


class Scene:
    """A batcher over number pages."""

    def __init__(
        self, slabs: int = 40, tails: int = 8, sequences_max: int = 8, *, guesses_max: int = 0
    ) -> None:
        self.engine = NumberEngine(slabs + tails)
        self.pool = PagePool(self.engine.memory, tail_slots=tails, budget_bytes=slabs * SLAB_BYTES)
        self.pages = NaivePages()
        self.now = 0.0
        self.tick = 0.01
        self.batcher = Batcher(
            self.engine, self.pool, self.pages, self.clock,
            sequences_max=sequences_max, guesses_max=guesses_max,
        )  # fmt: skip
        self.events: list = []

    def clock(self) -> float:
        self.now += self.tick
        return self.now

    def job(
        self, prompt: Sequence[int], count: int = 5, *, owner: bytes = A, conversation: int = 1
    ) -> Job:
        plan = replace(PLAN, context=Context(tuple(prompt), ANY), output_tokens_max=count)
        state = SamplerState(ASKED, vocabulary=2 * VOCAB)
        run = Run(plan, EntryId(b"s" * 32), 1, state, Silent(), 4_096)
        return Job(run, bytes([conversation]) * 32, owner, DOMAIN, NAMESPACE)

    def add(self, prompt: Sequence[int], count: int = 5, **fields: object) -> Job:
        job = self.job(prompt, count, **fields)  # type: ignore[arg-type]
        self.batcher.add(job)
        return job

    def step(self) -> list:
        events = self.batcher.step()
        self.pool.check_integrity()
        self.events += events
        return events

    def run(self) -> None:
        for _ in range(10_000):
            if self.batcher.is_idle:
                return
            self.step()
        raise AssertionError("the batcher does not end")

    def of(self, job: Job) -> list:
        return [event for about, event in self.events if about is job]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def is_right(job: Job) -> bool:
    """Say whether a finished run has the tokens that it has alone."""
    prompt = list(job.run.plan.prompt)
    return job.run.token_ids == answer(prompt, job.run.plan.output_tokens_max)


# --- one run --------------------------------------------------------------------------


def saved(scene: Scene, prompt: list[int]) -> None:
    """Compute and store a context, then drop it from memory."""
    job = scene.add(prompt, 1)
    scene.run()
    source = scene.pool.cached.unpinned(job.ids, job.conversation)
    ids = job.ids[: source.tokens]
    scene.pages.save(job.conversation, NAMESPACE, b"s" * 32, b"", ids, source)
    scene.pool.cached.evict(job.conversation)


def test_a_run_is_computed_from_prompt_to_end(scene: Scene):
    job = scene.add(text(600, 1))
    scene.run()
    assert is_right(job)
    assert scene.engine.steps == [[512], [88], [1], [1], [1], [1]]
    kinds = [type(event) for event in scene.of(job)]
    assert kinds == [Found, Computed, *[Chosen] * 5, Ended]
    assert scene.of(job)[0] == Found(0, 0)
    assert scene.of(job)[-1] == Ended(None)
    assert job.run.finished == (FinishReason.LENGTH, "output_tokens_max")


def test_the_next_turn_finds_the_pages_of_the_last_one(scene: Scene):
    first = scene.add(text(600, 1))
    scene.run()
    again = scene.add([*first.ids, *text(20, 2)])
    scene.run()
    assert scene.of(again)[0] == Found(len(first.ids) - 1, 0)
    assert is_right(again)


def test_two_branches_both_stay_cached(scene: Scene):
    root = text(700, 1)
    left, right = [*root, *text(30, 2)], [*root, *text(30, 3)]
    for prompt in (left, right, left, right):
        scene.add(prompt)
        scene.run()
    found = [event.cached_tokens for _, event in scene.events if isinstance(event, Found)]
    assert found == [0, 700, 729, 729]


def test_a_run_that_was_resumed_goes_on_behind_its_tokens(scene: Scene):
    prompt = text(40, 1)
    job = scene.job(prompt, 6)
    for token_id in answer(prompt, 3):
        job.run.add_token(token_id)
    resumed = Job(job.run, job.conversation, A, DOMAIN, NAMESPACE)
    scene.batcher.add(resumed)
    scene.run()
    assert is_right(resumed)
    assert len([e for e in scene.of(resumed) if isinstance(e, Chosen)]) == 3


def test_the_shown_bytes_come_with_their_token(scene: Scene):
    job = scene.add(text(3, 1), 2)
    scene.run()
    assert [e.shown for e in scene.of(job) if isinstance(e, Chosen)] == [b".", b"."]


# --- several runs ---------------------------------------------------------------------


def test_runs_together_give_the_tokens_of_each_alone(scene: Scene):
    jobs = [scene.add(text(30 + 90 * n, n), 30, conversation=n) for n in range(6)]
    scene.run()
    assert all(map(is_right, jobs))
    assert max(map(len, scene.engine.steps)) == 6


def test_a_run_that_decodes_is_in_every_step_beside_a_long_prompt(scene: Scene):
    short = scene.add(text(10, 1), 30, conversation=1)
    scene.step()
    long = scene.add(text(2_000, 2), 3, conversation=2)
    before = len(short.run.token_ids)
    steps = len(scene.engine.steps)
    while not short.run.finished:
        scene.step()
    assert 30 - before == len(scene.engine.steps) - steps
    assert max(sum(rows) for rows in scene.engine.steps[steps:]) < 512
    scene.run()
    assert is_right(short)
    assert is_right(long)


def test_a_common_prefix_of_one_owner_is_computed_once(scene: Scene):
    shared = text(1_100, 1)
    scene.add(shared, 1)
    scene.run()
    rows = scene.batcher.counters.rows
    jobs = [scene.add([*shared, *text(10, n)], 2, conversation=n + 2) for n in range(5)]
    scene.run()
    assert all(map(is_right, jobs))
    assert scene.batcher.counters.rows - rows <= 5 * (10 + 2)


def test_a_prefix_that_many_begin_with_at_once_is_computed_once(scene: Scene):
    shared = text(1_100, 1)
    jobs = [scene.add([*shared, *text(10, n)], 4, conversation=n) for n in range(6)]
    scene.run()
    assert all(map(is_right, jobs))
    assert scene.batcher.counters.rows < len(shared) + 6 * (SLAB_TOKENS // 2 + 14)


def test_a_run_whose_prefix_is_not_computed_after_all_begins_by_itself(scene: Scene):
    shared = text(1_100, 1)
    first, second = (scene.add([*shared, n], 4, conversation=n) for n in range(2))
    scene.step()
    assert second.sequence is None
    first.cancel()
    scene.run()
    assert is_right(second)


def test_another_owners_request_waits_for_no_place():
    scene = Scene(sequences_max=4)
    many = [scene.add(text(20, n), 40, conversation=n) for n in range(9)]
    for _ in range(3):
        scene.step()
    other = scene.add(text(20, 99), 4, owner=B, conversation=99)
    events = scene.step()
    assert any(about is other and isinstance(event, Chosen) for about, event in events)
    scene.run()
    assert all(map(is_right, [*many, other]))
    assert scene.batcher.counters.preemptions == 1


# --- memory ---------------------------------------------------------------------------


def test_where_memory_is_short_the_newest_run_waits_and_computes_again():
    scene = Scene(slabs=5, tails=4)
    jobs = [scene.add(text(700, n), 400, conversation=n) for n in range(3)]
    scene.run()
    assert all(map(is_right, jobs))
    assert scene.batcher.counters.preemptions > 0
    assert next(jobs.index(about) for about, e in scene.events if isinstance(e, Ended)) == 0


def test_a_preempted_run_reports_what_was_found_once():
    scene = Scene(slabs=5, tails=4)
    jobs = [scene.add(text(700, n), 400, conversation=n) for n in range(3)]
    scene.run()
    assert [len([e for e in scene.of(job) if isinstance(e, Found)]) for job in jobs] == [1, 1, 1]


def test_a_context_that_never_fits_ends_alone():
    scene = Scene(slabs=4)
    small, large = scene.add(text(10, 1)), scene.add(text(2_500, 2), conversation=2)
    scene.run()
    assert is_right(small)
    error = scene.of(large)[-1].error
    assert isinstance(error, CacheBudgetExceeded)
    assert large.run.finished is not None
    assert large.run.finished[0] is FinishReason.INTERRUPTED


def test_a_context_longer_than_the_models_ends_alone(scene: Scene):
    job = scene.add(text(4_097, 1))
    scene.run()
    assert scene.of(job)[-1].error.reason == "CONTEXT_TOO_LONG"


@pytest.mark.parametrize("seed", range(15))
def test_any_mix_gives_the_tokens_of_each_run_alone(seed: int):
    dice = random.Random(seed)
    scene = Scene(slabs=dice.choice((4, 6, 12)), tails=dice.choice((1, 2, 6)),
                  sequences_max=dice.choice((2, 3, 8)))  # fmt: skip
    stems = [text(dice.choice((5, 300, 900)), n) for n in range(3)]
    jobs: list[Job] = []
    waiting = 12
    while waiting or not scene.batcher.is_idle:
        if waiting and dice.random() < 0.3:
            waiting -= 1
            prompt = [*dice.choice(stems), *text(dice.randrange(1, 80), dice.randrange(9))]
            owner, number = dice.choice((A, B)), dice.randrange(4)
            count = dice.randrange(1, 70)
            jobs.append(scene.add(prompt, count, owner=owner, conversation=number))
        if jobs and dice.random() < 0.02:
            dice.choice(jobs).cancel()
        scene.step()
    for job in jobs:
        assert job.run.finished is not None
        expected = answer(job.run.plan.prompt, len(job.run.token_ids))
        assert job.run.token_ids == expected
        if not job.is_cancelled:
            assert job.run.finished[0] is FinishReason.LENGTH


# --- cancellation and failures --------------------------------------------------------


def test_a_cancelled_run_ends_before_the_next_step(scene: Scene):
    job = scene.add(text(900, 1))
    scene.step()
    job.cancel()
    scene.run()
    assert scene.engine.steps == [[512]]
    assert job.run.finished == (FinishReason.CANCELLED, "cancelled by a member")
    assert scene.of(job)[-1] == Ended(None)


def test_a_run_cancelled_before_its_first_step_computes_nothing(scene: Scene):
    job = scene.add(text(9, 1))
    job.cancel()
    scene.run()
    assert scene.engine.steps == []
    assert scene.of(job) == [Ended(None)]


def test_a_run_that_can_not_be_computed_ends_alone(scene: Scene):
    good, bad = scene.add(text(10, 1), conversation=1), scene.add([VOCAB + 3], conversation=2)
    scene.engine.fails = {VOCAB + 3}
    scene.run()
    assert is_right(good)
    assert scene.of(bad)[-1].error is not None
    assert bad.run.finished is not None
    assert bad.run.finished[0] is FinishReason.INTERRUPTED
