"""The pages of a replay: private, held by nobody between chunks, freed at the end."""

import numpy as np
import pytest

from model_host.errors import CacheBusy
from model_host.kv import PagePool
from model_host.replay.pages import ReplayPages
from model_host.replay.passes import Pass, Span, passes_of
from replica.limits import LOSSES_MAX
from tests.model_host.kv.paged import SLAB_BYTES, extend
from tests.model_host.kv.pooled import slabs_of
from tests.model_host.number_engine import NumberEngine, answer

KEY, OTHER = b"k" * 32, b"o" * 32


class Computing:
    def __init__(self, slabs: float = 10) -> None:
        self.engine = NumberEngine()
        budget = int((slabs + 1) * SLAB_BYTES)
        self.pool = PagePool(self.engine.memory, tail_slots=2, budget_bytes=budget)
        self.pages = ReplayPages(self.engine, self.pool, KEY)

    def compute(self, part: Pass, rows: int = 512) -> list[int]:
        """Compute a pass; return the greedy choice at each row wanted."""
        at, chosen = part.start, []
        while at < len(part.ids):
            done = self.pages.compute(part, at, rows)
            at = max(at, done.stop)
            chosen += [int(np.argmax(row)) for row in done.logits]
            self.pool.check_integrity()
        return chosen

    def cache(self, ids: tuple[int, ...], conversation: bytes = OTHER) -> None:
        """Let a conversation compute and cache a context."""
        sequence = self.pool.open((*ids, 0), OTHER, conversation)
        extend(self.pool, self.engine.memory, sequence, ids[sequence.tokens :])
        self.pool.close(sequence)


def test_the_logits_are_those_of_the_answer_whatever_the_chunks():
    prompt = tuple(range(700))
    tokens = answer(prompt, 40)
    (part,) = passes_of([Span((*prompt, *tokens[:-1]), len(prompt) - 1)])
    for rows in (512, 100, 7):
        assert Computing().compute(part, rows) == tokens


def test_what_others_have_cached_is_not_used_nor_is_it_changed():
    one, ids = Computing(), tuple(range(600))
    one.cache(ids)
    before = one.pool.used_bytes
    (part,) = passes_of([Span(ids, 599)])
    one.compute(part)
    assert sum(rows for step in one.engine.steps for rows in step) == 600
    one.pages.leave(part, None)
    one.pages.free()
    assert one.pool.used_bytes == before
    assert slabs_of(one.pool, OTHER)


def test_a_pass_that_was_left_keeps_what_the_next_one_begins_with():
    one = Computing()
    first, second = tuple(range(1500)), (*range(700), *range(5000, 5100))
    passes = passes_of([Span(first, 1499), Span(second, 799)])
    for part, upcoming in zip(passes, [*passes[1:], None], strict=True):
        one.compute(part)
        one.pages.leave(part, upcoming)
        tokens = sum(slab.tokens for slab in slabs_of(one.pool, KEY))
        assert tokens == (upcoming.start if upcoming else 0)
    assert sum(rows for step in one.engine.steps for rows in step) == 1600


def test_evicted_pages_are_computed_again_a_bounded_number_of_times():
    one, prompt = Computing(), tuple(range(600))
    tokens = answer(prompt, 5)
    (part,) = passes_of([Span((*prompt, *tokens[:-1]), 599)])
    one.pages.compute(part, 0, 512)
    one.pool.cached.evict(KEY)
    done = one.pages.compute(part, 512, 300)
    assert (done.stop, done.rows, len(done.logits)) == (300, [], 0)
    assert one.compute(Pass(part.ids, 512, part.wanted)) == tokens
    with pytest.raises(CacheBusy):
        for _ in range(LOSSES_MAX):
            one.pool.cached.evict(KEY)
            one.pages.compute(part, 512, 16)


def test_requests_that_hold_the_memory_make_a_replay_fail_and_lose_nothing():
    one = Computing(slabs=2)
    running = one.pool.open((*range(1000), 0), OTHER, OTHER)
    extend(one.pool, one.engine.memory, running, tuple(range(1000)))
    with pytest.raises(CacheBusy):
        one.compute(Pass(tuple(range(600)), 0))
    one.pages.free()
    assert running.tokens == 1000
    one.pool.check_integrity()


def test_cached_bytes_are_compared_with_computed_ones():
    one, ids = Computing(), tuple(range(700))
    one.cache(ids[:650])
    (part,) = passes_of([Span(ids, 700)])
    one.compute(part)
    first, second = one.pages.compare(part, 0, OTHER), one.pages.compare(part, 512, OTHER)
    assert (first.tokens, second.tokens) == (512, 138)
    assert first.differs_at is second.differs_at is None
    (slab,) = [node.slab for node in one.pool._index if OTHER in {u.key for u in node.users}][:1]
    one.engine.memory.cells[slab, 3] += 1
    assert one.pages.compare(part, 0, OTHER).differs_at == 3
    assert one.pages.compare(part, 0, b"unknown").tokens == 0
