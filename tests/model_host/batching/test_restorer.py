"""Contexts restored from the store, by a batcher that would compute them (spec/08-checkpoint)."""

from dataclasses import replace

import pytest

from model_host.batching.job import Found
from model_host.errors import CheckpointCorrupt
from model_host.kv.memory import SLAB_TOKENS
from model_host.kv.page_store import PageTarget, Stored
from tests.model_host.batching.test_batcher import NAMESPACE, Scene, is_right, saved, text
from tests.model_host.kv.naive_pages import NaivePages


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_an_audit_gets_the_positions_that_were_restored(scene: Scene):
    prompt = text(800, 1)
    saved(scene, prompt)
    job = scene.add([*prompt, 5], 3)
    scene.run()
    (restored,) = scene.batcher.restored
    assert (restored.conversation, restored.namespace) == (job.conversation, NAMESPACE)
    assert (restored.ids, restored.start) == (tuple(prompt), 0)


def test_where_computing_is_sooner_nothing_is_restored(scene: Scene):
    prompt = text(800, 1)
    saved(scene, prompt)
    scene.tick = 1.0  # a restore of 800 tokens takes as long as a step of 512
    scene.add([*prompt, 5], 1)
    scene.run()
    scene.pool.cached.evict(bytes([1]) * 32)
    rows = scene.batcher.counters.rows
    job = scene.add([*prompt, 6], 3)
    scene.run()
    counters = scene.batcher.counters
    assert (counters.restores, counters.declined, counters.fallbacks) == (1, 1, 0)
    assert counters.rows - rows == 801 + 2
    assert is_right(job)


def test_a_stored_context_is_restored_and_not_computed(scene: Scene):
    prompt = text(800, 1)
    saved(scene, prompt)
    rows = scene.batcher.counters.rows
    job = scene.add([*prompt, *text(10, 2)], 3)
    scene.run()
    assert scene.of(job)[0] == Found(0, 800)
    assert scene.batcher.counters.restores == 1
    assert scene.batcher.counters.rows - rows == 10 + 2
    assert is_right(job)


def test_a_store_that_reaches_further_than_memory_is_used(scene: Scene):
    prompt = text(800, 1)
    saved(scene, prompt)
    scene.tick = 0.0
    scene.add(prompt[:100], 1)
    scene.run()
    job = scene.add([*prompt, 5], 3)
    scene.run()
    assert scene.of(job)[0] == Found(64, 736)
    assert is_right(job)


class Rotten(NaivePages):
    """A store whose second group fails its check."""

    def load(self, stored: Stored, target: PageTarget) -> None:
        super().load(replace(stored, tokens=SLAB_TOKENS // 8), target)
        raise CheckpointCorrupt("a group")


def test_a_corrupt_checkpoint_is_counted_and_computed_instead(scene: Scene):
    prompt = text(800, 1)
    saved(scene, prompt)
    scene.pages.__class__ = Rotten
    job = scene.add([*prompt, 5], 3)
    scene.run()
    assert scene.of(job)[0] == Found(0, 0)
    assert scene.batcher.counters.fallbacks == 1
    assert is_right(job)


def test_every_token_is_counted_by_its_source(scene: Scene):
    prompt = text(800, 1)
    saved(scene, prompt)
    before = replace(scene.batcher.counters)
    scene.add([*prompt, *text(10, 2)], 3)
    scene.run()
    scene.add([*prompt, *text(20, 3)], 4, conversation=2)
    scene.run()
    counters = scene.batcher.counters
    assert counters.restored_tokens - before.restored_tokens == 800
    assert counters.shared_tokens - before.shared_tokens == 800
    assert counters.prefilled_tokens - before.prefilled_tokens == 10 + 20
    assert counters.output_tokens - before.output_tokens == 3 + 4
    assert counters.sequences == 1
    assert counters.step_s.total == counters.steps
