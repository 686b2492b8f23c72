"""Thousands of random operations on a pool, each compared with a naive twin.

After each one: every position of every sequence and of every cached page is what its ids
demand; nothing that is shared was written; free memory is zero; the budget holds, also
during the operation; the pool's own check passes.
"""

import random

import numpy as np
import pytest

from model_host.errors import CacheBudgetExceeded, CacheBusy, CheckpointDropped
from model_host.kv.lineage import unpack_ids
from model_host.kv.lookup import Node, chain
from model_host.kv.page_pool import PagePool, Staging
from model_host.kv.sequences import KVSequence
from model_host.kv.unpinned import UnpinnedSource
from tests.model_host.kv.naive_pool import Ids, NaivePool, common
from tests.model_host.kv.paged import (
    SLAB_BYTES,
    NumpyMemory,
    compute,
    contents,
    keys_and_values,
)
from tests.model_host.kv.pooled import slabs_of

CONVERSATIONS = [bytes([65 + n]) * 32 for n in range(5)]
DOMAINS = [b"x" * 32, b"y" * 32]


class Checked:
    """A pool and its twin, and the comparison of both."""

    def __init__(self, seed: int, *, slabs: int, budget_slabs: float, tail_slots: int) -> None:
        self.rng = random.Random(seed)
        self.memory = NumpyMemory(slabs + tail_slots)
        self.budget = int(budget_slabs * SLAB_BYTES)
        self.pool = PagePool(self.memory, tail_slots=tail_slots, budget_bytes=self.budget)
        self.naive = NaivePool()
        self.past: list[Ids] = [()]
        self.goals: dict[KVSequence, Ids] = {}
        self.sources: list[tuple[Ids, UnpinnedSource]] = []
        self.before: dict[Node, tuple[int, int]] = {}
        self.given_up: dict[Node | None, int] = {}
        self.is_exact = False
        self.now = 0.0
        self.refused = 0

    def check(self) -> None:
        self.pool.check_integrity()
        self.check_writes()
        self.check_contents()
        assert self.memory.most_used_bytes <= self.budget
        self.before = {node: (node.slab, node.tokens) for node in self.pool._index}
        self.memory.written.clear()
        self.given_up.clear()

    def check_writes(self) -> None:
        """Check that no position was written that was valid before the operation and still is."""
        valid = {}
        for node in self.pool._index:
            slab, tokens = self.before.get(node, (None, 0))
            if slab == node.slab:
                valid[slab] = min(tokens, node.tokens, self.given_up.get(node, tokens))
        for slab, start in self.memory.written:
            assert start >= valid.get(slab, 0), f"slab {slab} was written at {start}"

    def check_contents(self) -> None:
        for sequence in self.goals:
            ids = self.ids_of(sequence)
            assert np.array_equal(contents(self.memory, sequence), keys_and_values(ids))
        for ids, source in self.sources:
            expected = keys_and_values(ids)
            for start in range(0, source.tokens, 64):
                stop = min(start + 64, source.tokens)
                try:
                    payload = source.read(start, stop)
                except CheckpointDropped:
                    continue  # evicted, or rolled back
                assert np.array_equal(payload.view(np.uint64), expected[start:stop])
        for node in self.pool._index:
            ids = [i for each in chain(node) for i in unpack_ids(each.ids)]
            cells = self.memory.cells[node.slab]
            assert np.array_equal(cells[: node.tokens], keys_and_values(ids)[node.start :])
            assert node.holds or not cells[node.tokens :].any(), "idle memory is zero"
        free = sorted(set(range(self.memory.slabs)) - self.pool._slabs.in_use())
        assert not self.memory.cells[free].any(), "free memory is zero"
        assert self.memory.used_bytes <= self.pool.used_bytes

    def ids_of(self, sequence: KVSequence) -> Ids:
        return self.naive.running[sequence][1]


class Trial(Checked):
    """A random program for both."""

    def run(self, count: int, operations: dict[str, int]) -> None:
        names, weights = list(operations), list(operations.values())
        for name in self.rng.choices(names, weights, k=count):
            getattr(self, name)()
            self.check()
        for sequence in list(self.goals):
            self.pool.close(sequence)
        self.end_reading()
        for conversation in CONVERSATIONS:
            self.pool.cached.evict(conversation)
        assert self.pool.used_bytes == 0
        assert len(self.pool._index) == len(self.pool._users.conversations) == 0
        assert not self.memory.cells.any()

    # --- operations ---------------------------------------------------------------

    def open(self) -> None:
        ids, conversation = self._ids(), self.rng.choice(CONVERSATIONS)
        known = self.naive.conversations.get(conversation)
        domain = known.domain if known and self.rng.random() < 0.9 else self.rng.choice(DOMAINS)
        most, own = self.naive.find(ids, domain, conversation)
        sequence = self.pool.open(ids, domain, conversation)
        assert sequence.tokens == sequence.cached_tokens <= most
        assert sequence.tokens < len(ids)
        if self.is_exact:
            assert sequence.cached_tokens == most
            assert sequence.shared_tokens == most - own
        assert sequence.own_tokens <= own
        self.goals[sequence] = ids
        self._record(sequence)
        self.check()

    def step(self) -> None:
        sequence = self._sequence()
        ids = self.goals[sequence][sequence.tokens :]
        ids = ids or tuple(self.rng.choices(range(3), k=self.rng.randrange(1, 5)))
        if self.rng.random() < 0.3:
            ids = ids[: self.rng.randrange(1, 300)]
        before = (self.memory.used_bytes, self.pool.counters.evictions)
        try:
            self.pool.grow(sequence, len(ids) + self.rng.choice((0, 0, 1, 40)))
        except (CacheBusy, CacheBudgetExceeded):
            self.refused += 1
            assert (self.memory.used_bytes, self.pool.counters.evictions) == before
            return
        accepted = ids if self.rng.random() < 0.8 else ids[: self.rng.randrange(len(ids) + 1)]
        compute(self.memory, sequence, ids)
        if self.rng.random() < 0.9:  # else the step failed, and left its numbers behind
            ids_now = self.ids_of(sequence)
            self.pool.advance(sequence, accepted)
            self._record(sequence, (*ids_now, *accepted))

    def rollback(self) -> None:
        sequence = self._sequence()
        tokens, ids = sequence.tokens, self.ids_of(sequence)
        is_held = self._is_tail_held(sequence)
        keep = self.rng.choice((tokens, max(0, tokens - 3), self.rng.randrange(tokens + 1)))
        if self.is_exact:  # a context that was continued in place is cut with the sequence
            keep = min(tokens, max(keep, sequence.cached_tokens))
        kept = self.pool.rollback(sequence, keep)
        assert kept == sequence.tokens <= keep
        if self.is_exact:
            assert kept == keep
        self.naive.keep(sequence.user.key, ids[: tokens // 512 * 512])
        if is_held:
            self.naive.keep(sequence.user.key, ids)
        self._record(sequence, ids[:kept])

    def restore(self) -> None:
        sequence = self._sequence()
        ids = self.goals[sequence]
        start = sequence.tokens // 64 * 64
        if sequence.tokens >= len(ids) - 1:
            return
        stop = self.rng.randrange(sequence.tokens + 1, len(ids))
        fails_at = self.rng.choice((None, None, self.rng.randrange(start, stop)))
        if self.is_exact and start < sequence.cached_tokens:
            fails_at = None
        former = self.ids_of(sequence)
        if sequence.tokens % 512:  # an incomplete group is given up and restored
            self.given_up[sequence.node] = start % 512
        if self._is_tail_held(sequence):
            self.naive.keep(sequence.user.key, former)
        payload = keys_and_values(ids[:stop])
        try:
            with self.pool.restoring(sequence, ids[:stop]) as staging:
                _restore(staging, payload, fails_at)
            self._record(sequence, ids[:stop])
        except (OSError, CacheBusy, CacheBudgetExceeded):
            kept = sequence.tokens
            assert len(former) - 64 < kept <= len(former) or not self.is_exact
            self._record(sequence, former[:kept])

    def close(self) -> None:
        sequence = self._sequence()
        self.pool.close(sequence)
        self.naive.close(sequence)
        self.past.append(self.goals.pop(sequence))

    def drop(self) -> None:
        sequence = self._sequence()
        self.pool.drop(sequence)
        self.naive.close(sequence)
        del self.goals[sequence]

    def evict(self) -> None:
        conversation = self.rng.choice(CONVERSATIONS)
        is_held = any(s.user.key == conversation for s in self.goals)
        try:
            tokens = self.pool.cached.evict(conversation)
        except CacheBusy:
            assert is_held
        else:
            assert not is_held
            if self.is_exact:
                known = self.naive.conversations.get(conversation)
                assert (tokens > 0) == bool(known and any(known.contexts))
            self.naive.evict(conversation)
            assert slabs_of(self.pool, conversation) == []

    def begin_reading(self) -> None:
        conversation, ids = self._known_context()
        source = self.pool.cached.unpinned(ids, conversation)
        assert source.tokens <= len(ids)
        self.sources.append((ids[: source.tokens], source))
        if self.is_exact:
            assert source.tokens == len(ids)
            for start in range(0, source.tokens, 64):
                source.read(start, min(start + 64, source.tokens))

    def end_reading(self) -> None:
        self.sources.clear()

    def pin(self) -> None:
        conversation, ids = self._known_context()
        try:
            tokens = self.pool.cached.pin(ids, conversation, self.now + self.rng.randrange(9))
        except (CacheBudgetExceeded, CacheBusy):
            return
        assert tokens <= len(ids)

    def pass_time(self) -> None:
        self.now += self.rng.randrange(5)
        self.pool.cached.expire_pins(self.now)
        assert all(until > self.now for until in self.pool._holds.pins.values())

    # --- choices --------------------------------------------------------------------

    def _ids(self) -> Ids:
        running = list(self.goals.values())
        past = self.rng.choice([*self.past[-30:], *running])
        at = self.rng.randrange(len(past) + 1)
        at = self.rng.choice((at, len(past), len(past), at // 16 * 16, len(past) // 512 * 512))
        count = self.rng.choice((1, 5, 30, 200, 600, 900))
        new = self.rng.choices(range(self.rng.choice((1, 2, 1000))), k=count)
        if past and self.rng.random() < 0.2:
            return past  # the same again
        return (*past[:at], *new)[:1800]

    def _sequence(self) -> KVSequence:
        if not self.goals or (len(self.goals) < 4 and self.rng.random() < 0.1):
            self.open()
        return self.rng.choice(list(self.goals))

    def _known_context(self) -> tuple[bytes, Ids]:
        contexts = [
            (k, ids) for k, each in self.naive.conversations.items() for ids in each.contexts
        ]
        contexts += list(self.naive.running.values())
        if not contexts:
            self.open()
            return self._known_context()
        return self.rng.choice(sorted(contexts))

    def _is_tail_held(self, sequence: KVSequence) -> bool:
        """Say whether a reader or a pin holds the tail, which is then not cut."""
        return sequence.node is not None and sequence.node.holds > 1

    def _record(self, sequence: KVSequence, ids: Ids | None = None) -> None:
        ids = self.goals[sequence][: sequence.tokens] if ids is None else ids
        assert len(ids) == sequence.tokens
        if common(self.goals[sequence], ids) < min(len(ids), len(self.goals[sequence])):
            raise AssertionError("the trial lost track of a sequence's ids")
        if len(ids) > len(self.goals[sequence]):
            self.goals[sequence] = ids
        self.naive.running[sequence] = (sequence.user.key, ids)


def _restore(staging: Staging, payload: np.ndarray, fails_at: int | None) -> None:
    """Write all groups, or fail before the first that ends after `fails_at`."""
    while staging.tokens < len(payload):
        if fails_at is not None and staging.tokens >= fails_at:
            raise OSError
        end = min(staging.tokens // 64 * 64 + 64, len(payload))
        staging.write(end, payload[staging.tokens : end].view(np.uint8))


CALM = {"open": 6, "step": 20, "close": 6, "rollback": 2, "restore": 3, "evict": 1}
READ = {"begin_reading": 3, "end_reading": 2, "pin": 1, "pass_time": 1}


@pytest.mark.parametrize("seed", range(4))
def test_with_memory_for_all_the_longest_prefix_is_found_and_only_that(seed: int) -> None:
    trial = Trial(seed, slabs=300, budget_slabs=300, tail_slots=(0, 2, 8)[seed % 3])
    trial.is_exact = True
    trial.run(250, CALM | READ)


@pytest.mark.parametrize("seed", range(6))
def test_with_little_memory_all_that_is_found_is_what_was_computed(seed: int) -> None:
    slots = (0, 1, 4)[seed % 3]
    slabs, budget = [(6, 6), (12, 6.5), (5, 30), (40, 5)][seed % 4]
    trial = Trial(seed, slabs=slabs, budget_slabs=budget, tail_slots=slots)
    trial.run(700, CALM | READ | {"drop": 2})
    assert trial.refused
    assert trial.pool.counters.evictions
