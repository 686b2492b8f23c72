"""The model agrees with transformers (bench/make_golden.py made the file)."""

from collections.abc import Callable

import numpy as np
import pytest

from bench.pages import Memory, Pages
from model_host.engine.tokenizer import Tokenizer
from model_host.engine.torch_engine import TorchEngine
from model_host.engine_api import Logits
from tests.model_host.engine import tiny_model
from tests.model_host.engine.prefilled import GOLDEN, LONG, PrefilledOf

PROMPTS = range(len(GOLDEN["prompts"]))


def _prompted(prompt: int, memory: Memory, prefilled_of: PrefilledOf) -> tuple[Pages, Logits]:
    """Compute a prompt; return its sequence and the logits after its last token."""
    pages, ids = memory.pages(0, 1), GOLDEN["prompts"][prompt]["ids"]
    if prompt != LONG:
        return pages, memory.last(pages, ids)
    done = prefilled_of(memory.engine.numerics)
    done.restore(memory, pages, len(ids))
    row: Logits = done.rows[-1]
    return pages, row


@pytest.mark.parametrize("prompt", PROMPTS)
def test_fp32_logits_and_greedy_tokens_are_those_of_transformers(
    prompt: int, engine_of: Callable[[str], TorchEngine], prefilled_of: PrefilledOf
) -> None:
    golden, memory = GOLDEN["prompts"][prompt], Memory(engine_of("fp32"))
    pages, logits = _prompted(prompt, memory, prefilled_of)
    assert np.abs(logits[golden["best_ids"]] - golden["best_logits"]).max() < 1e-3
    assert np.abs(logits[::768] - golden["every_768th"]).max() < 1e-3
    assert abs(np.linalg.norm(logits.astype(np.float64)) - golden["length"]) < 1e-1
    assert abs(logits.astype(np.float64).sum() - golden["sum"]) < 1e-3 * len(logits)
    # Each token is the best one after those before it. That decoding one at a time gives the
    # bits of this one step is what test_exactness shows.
    greedy = golden["greedy"]
    rows = memory.compute(pages, greedy[:-1])
    memory.close()
    assert [int(logits.argmax()), *map(int, rows.argmax(-1))] == greedy


@pytest.mark.parametrize("numerics", ["q4", "bf16"])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_logits_of_fewer_bits_are_near(
    prompt: int,
    numerics: str,
    engine_of: Callable[[str], TorchEngine],
    prefilled_of: PrefilledOf,
) -> None:
    golden, memory = GOLDEN["prompts"][prompt], Memory(engine_of(numerics))
    _, logits = _prompted(prompt, memory, prefilled_of)
    memory.close()
    # bf16 has 8 bits: a logit of 20 lies within 1/16 of its neighbours, and 30 layers add up.
    assert np.abs(logits[golden["best_ids"]] - golden["best_logits"]).max() < 1.0
    assert int(logits.argmax()) in golden["best_ids"][:3]


def test_token_ids_are_those_of_transformers(tokenizer: Tokenizer) -> None:
    for golden in GOLDEN["prompts"]:
        assert tokenizer.encode_template(golden["text"]) == golden["ids"]
    for golden in GOLDEN["texts"]:
        assert tokenizer.encode(golden["text"]) == golden["ids"]


def test_the_step_function_agrees_with_a_naive_forward(
    tiny: TorchEngine, tiny_memory: Memory
) -> None:
    rng = np.random.default_rng(3)
    ids = rng.integers(0, len(tiny_model.TOKENS), 600).tolist()
    naive = tiny_model.naive_logits(tiny.file, ids)
    rows = tiny_memory.compute(tiny_memory.pages(0, 1), ids)
    assert np.abs(rows - naive).max() < 1e-3
