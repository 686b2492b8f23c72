"""The vectors of visible text, run against the code."""

from collections.abc import Sequence
from typing import Any

import pytest

from model_host.engine.model_file import TokenizerData
from model_host.engine.tokenizer import BYTE_LEVEL, Tokenizer
from model_host.generation import VisibleText
from tests.vectors.plain import file_of, unhex, vectors_of

Vector = dict[str, Any]


class Tokens:
    """A tokenizer whose ids are places in a list of bytes."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self._tokens = tokens

    hides_space = False

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokens[token_id]

    def decode_bytes(self, token_ids: Sequence[int]) -> bytes:
        return b"".join(self._tokens[token_id] for token_id in token_ids)


@pytest.mark.parametrize("vector", vectors_of("text"))
def test_an_answer_shows_the_text_of_the_vector(vector: Vector) -> None:
    before, tokens = ([*map(unhex, vector[name])] for name in ("before", "tokens"))
    continued = range(len(before))
    tokenizer, least = Tokens([*before, *tokens]), vector["output_tokens_min"]
    visible = VisibleText(tokenizer, vector["stop"], continued, least)
    shown, count = b"", 0
    for count, _ in enumerate(tokens, 1):
        shown += visible.push(len(before) + count - 1)
        assert vector["text"].encode().startswith(shown)
        if visible.stopped_by is not None:
            break
    shown += visible.finish(can_continue=False)
    assert shown.decode() == vector["text"]
    assert len(shown) == vector["visible_bytes"]
    assert (visible.stopped_by, count) == (vector["stopped_by"], vector["output_tokens"])


@pytest.mark.parametrize("vector", file_of("text")["ends"], ids=lambda vector: vector["name"])
def test_a_model_ends_turns_with_the_tokens_of_the_vector(vector: Vector) -> None:
    tokens, types = tuple(vector["tokens"]), tuple(vector["types"])
    listed = tuple(vector["listed_ids"])
    data = TokenizerData(BYTE_LEVEL, "gpt-2", tokens, types, (), None, vector["eos_id"], listed)
    assert sorted(Tokenizer.build(data).turn_ends) == vector["ends"]
