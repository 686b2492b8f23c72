"""The vectors of SentencePiece tokenizers, run against the code."""

from functools import cache
from typing import Any

import pytest

from model_host.engine.model_file import TokenizerData
from model_host.engine.sentence_pieces import MODEL, merges_by_score
from model_host.engine.tokenizer import Tokenizer
from model_host.generation import VisibleText
from tests.vectors.plain import file_of, vectors_of

RAW = file_of("pieces")["pieces"]
PRE = sorted(RAW["digests"])


@cache
def _tokenizer(pre: str) -> Tokenizer:
    tokens, types = tuple(RAW["tokens"]), tuple(RAW["types"])
    merges = merges_by_score(tokens, types, RAW["scores"])
    return Tokenizer.build(TokenizerData(MODEL, pre, tokens, types, merges, None, None))


@pytest.mark.parametrize("pre", PRE)
def test_the_tokenizer_has_the_merges_the_bytes_and_the_digest_of_the_file(pre: str) -> None:
    tokenizer = _tokenizer(pre)
    assert list(tokenizer.data.merges) == RAW["merges"]
    assert tokenizer.digest.hex() == RAW["digests"][pre]
    found = [tokenizer.token_bytes(token_id).hex() for token_id in range(tokenizer.token_count)]
    assert found == RAW["bytes"]


@pytest.mark.parametrize("pre", PRE)
@pytest.mark.parametrize("vector", vectors_of("pieces"))
def test_a_text_has_the_ids_of_the_vector(vector: dict[str, Any], pre: str) -> None:
    tokenizer = _tokenizer(pre)
    text, ids = vector["text"], vector["ids"][pre]
    if vector["literal"]:
        assert tokenizer.encode_template(text, begins=vector["begins"]) == ids
    else:
        assert tokenizer.encode(text) == ids


@pytest.mark.parametrize("pre", PRE)
@pytest.mark.parametrize("answer", file_of("pieces")["answers"], ids=lambda each: each["name"])
def test_an_answer_has_the_text_of_the_vector(answer: dict[str, Any], pre: str) -> None:
    visible = VisibleText(_tokenizer(pre), (), answer["before"])
    shown = b"".join(map(visible.push, answer["ids"])) + visible.finish(can_continue=False)
    assert shown.decode() == answer["text"][pre]
