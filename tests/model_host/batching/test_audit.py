"""The audit: restored groups are computed again, and a wrong one is found."""

import pytest

from model_host.batching.audit import RESTORED_MAX, SAMPLE_GROUPS, Auditor, Restored
from model_host.errors import CheckpointMissing
from tests.model_host.batching.test_batcher import NAMESPACE, Scene, saved, text
from tests.model_host.kv.pooled import slabs_of

CONVERSATION = bytes([1]) * 32


class Audited(Scene):
    """A batcher whose restored contexts are audited; the samples are the first groups."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[int] = []
        self.auditor = Auditor(self.engine, self.pool, self.pages, self.choose)

    def choose(self, below: int) -> int:
        self.drawn.append(below)
        return 0

    def restore(self, prompt: list[int]) -> None:
        saved(self, prompt)
        self.add([*prompt, 5], 1)
        self.run()
        while self.batcher.restored:
            self.auditor.add(self.batcher.restored.popleft())

    def audit(self) -> None:
        while not self.auditor.is_idle:
            self.auditor.audit_next()
            self.pool.check_integrity()


@pytest.fixture
def audited() -> Audited:
    return Audited()


@pytest.mark.parametrize("tokens", [40, 64, 512, 576, 1000])
def test_a_sample_of_each_restored_context_is_computed_again(audited: Audited, tokens: int):
    audited.restore(text(tokens, 1))
    steps = len(audited.engine.steps)
    cached = slabs_of(audited.pool, CONVERSATION)
    audited.audit()
    groups = -(-tokens // 64)
    assert audited.drawn == [groups, groups - 1][: min(SAMPLE_GROUPS, groups)]
    rows = [rows for (rows,) in audited.engine.steps[steps:]]
    assert rows == [min(64, tokens - at) for at in (0, 64)[: len(audited.drawn)]]
    assert audited.auditor.counters.audited == len(rows)
    assert audited.auditor.counters.mismatches == 0
    assert slabs_of(audited.pool, CONVERSATION) == cached


def test_a_wrong_page_is_found_though_its_digest_is_right(audited: Audited):
    prompt = text(200, 1)
    saved(audited, prompt)
    (held,) = audited.pages._held[CONVERSATION]
    held.payload[1][7] ^= 1
    audited.add([*prompt, 5], 1)
    audited.run()
    audited.auditor.add(audited.batcher.restored.popleft())
    audited.audit()
    assert (audited.auditor.counters.audited, audited.auditor.counters.mismatches) == (2, 1)
    assert audited.pool.used_bytes == 0
    with pytest.raises(CheckpointMissing):
        audited.pages.find(CONVERSATION, NAMESPACE, [*prompt, 5])


def test_pages_that_were_evicted_are_left_out(audited: Audited):
    audited.restore(text(200, 1))
    audited.pool.cached.evict(CONVERSATION)
    audited.audit()
    assert audited.auditor.counters.audited == 0


def test_a_conversation_with_other_readers_since_is_audited_among_them(audited: Audited):
    audited.restore(text(200, 1))
    other = b"e" * 32
    audited.pool.close(audited.pool.open(text(200, 1), other, CONVERSATION))
    audited.audit()
    assert audited.auditor.counters.audited == SAMPLE_GROUPS
    assert audited.pool.cached.domain(CONVERSATION) == other


def test_an_engine_that_is_not_bitwise_audits_nothing(audited: Audited):
    audited.engine.bitwise = False
    audited.restore(text(200, 1))
    assert audited.auditor.is_idle


def test_the_samples_that_wait_are_bounded(audited: Audited):
    for _ in range(RESTORED_MAX + 9):
        audited.auditor.add(Restored(CONVERSATION, NAMESPACE, tuple(range(200)), 0))
    assert len(audited.auditor._samples) == RESTORED_MAX * SAMPLE_GROUPS
