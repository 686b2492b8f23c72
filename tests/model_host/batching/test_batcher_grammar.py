"""Constrained runs among others: the tokens of each alone, and no run fails another."""

from dataclasses import replace

import numpy as np

from model_host.batching.job import Job
from model_host.errors import GrammarFailed
from model_host.grammar import Grammar, Grammars, source_for
from model_host.refusals import TokenizerBytesMissing
from model_host.rendering.tool_formats import HERMES
from model_host.sampling.state import SamplerState, allowed_ids
from replica.log.body import FinishReason, FormatKind, ResponseFormat
from tests.model_host.batching.test_batcher import ASKED, Scene, is_right, text
from tests.model_host.kv.paged import keys_and_values
from tests.model_host.number_engine import VOCAB, logits_after

END = 0
PATTERNS = ("[a-f]{9}", "(abc|abd|[0-9]+;)*", "[^a]{3,30}z", "x+")


class Words:
    """The vocabulary of the number engine: a token that ends a turn, and 96 characters."""

    token_count = VOCAB

    hides_space = False

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([30 + token_id]) if token_id != END else b""

    def encode(self, words: str) -> list[int]:
        lacking = bytes(byte for byte in words.encode() if not 30 < byte < 30 + VOCAB)
        if lacking:
            raise TokenizerBytesMissing(bytes_missing=lacking)
        return [byte - 30 for byte in words.encode()]


GRAMMARS = Grammars(Words(), {END})


def grammar_of(pattern: str) -> Grammar:
    wanted = ResponseFormat(FormatKind.REGEX, pattern)
    source = source_for(replace(ASKED, response_format=wanted), (), HERMES)
    assert source is not None
    return GRAMMARS.compile(source)


def constrained(scene: Scene, pattern: str, seed: int, count: int = 40) -> Job:
    """Add a run whose answer matches a regular expression."""
    job = scene.job(text(20 + 7 * seed, seed), count, conversation=seed)
    job.run.grammar = grammar_of(pattern)
    job.run.sampler_state = SamplerState(ASKED, vocabulary=VOCAB, end_ids=(END,))
    scene.batcher.add(job)
    return job


def alone(job: Job, pattern: str) -> list[int]:
    """Return the tokens of a run, computed without pages or batches."""
    grammar, ids = grammar_of(pattern), list(job.run.plan.prompt)
    answer: list[int] = []
    while len(answer) < job.run.plan.output_tokens_max and not grammar.is_over:
        row = logits_after(int(keys_and_values(ids)[-1]))
        allowed = allowed_ids(grammar.mask(), VOCAB)
        token_id = int(np.argmax(np.where(allowed, row, -np.inf)))
        ids.append(token_id)
        answer.append(token_id)
        if token_id == END:
            break
        grammar.advance(token_id)
    return answer


def test_constrained_runs_beside_free_ones_give_the_tokens_of_each_alone():
    scene = Scene()
    jobs = [constrained(scene, pattern, n) for n, pattern in enumerate(PATTERNS)]
    free = [scene.add(text(30, 50 + n), 25, conversation=50 + n) for n in range(3)]
    scene.run()
    assert max(map(len, scene.engine.steps)) > 4
    assert all(map(is_right, free))
    for job, pattern in zip(jobs, PATTERNS, strict=True):
        assert job.run.token_ids == alone(job, pattern)


def test_a_complete_form_ends_its_run_in_the_step_that_completes_it():
    scene = Scene()
    job = constrained(scene, PATTERNS[0], 1)
    scene.run()
    assert job.run.finished == (FinishReason.STOP, "the form is complete")
    assert len(job.run.token_ids) == 9
    assert len(scene.engine.steps) == 9


def test_a_grammar_that_gets_stuck_ends_its_run_alone():
    scene = Scene()
    stuck, good = constrained(scene, "ab\x04c", 1), scene.add(text(10, 9), conversation=9)
    scene.run()
    assert is_right(good)
    assert isinstance(scene.of(stuck)[-1].error, GrammarFailed)
    assert stuck.run.finished is not None
    assert stuck.run.finished[0] is FinishReason.INTERRUPTED
    assert stuck.run.token_ids == Words().encode("ab")


def test_a_preempted_run_goes_on_in_its_grammar():
    scene = Scene(slabs=5, tails=4)
    patterns = ["[a-f]{390}", "([ab]c)+", "[^a]{3,350}z"]
    jobs = [constrained(scene, pattern, 97 + n, 400) for n, pattern in enumerate(patterns)]
    scene.run()
    assert scene.batcher.counters.preemptions > 0
    for job, pattern in zip(jobs, patterns, strict=True):
        assert job.run.token_ids == alone(job, pattern)
