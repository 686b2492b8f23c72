"""The vectors of SentencePiece tokenizers, run against the code."""

from functools import cache
from typing import Any

import pytest

from model_host.engine.model_file import TokenizerData
from model_host.engine.sentence_pieces import MODEL, merges_by_score
from model_host.engine.tokenizer import Tokenizer
from model_host.generation import VisibleText
from model_host.rendering import Template
from model_host.rendering.listing import ContextItem, Listing
from model_host.rendering.render import Renderer
from replica.ids import EntryId
from replica.log import Message, Part, Speaker, Text, Tokens, Tools
from replica.log.body import ToolDefinition
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


def test_a_space_is_written_before_the_text_with_which_a_message_opens_a_turn_and_no_other() -> (
    None
):
    tokenizer = _tokenizer("spaced")
    renderer = Renderer.load(
        Template("{% for m in messages %}<s>{{ m.content }}{% endfor %}"), tokenizer
    )
    the, spaced = tokenizer.encode("the"), tokenizer.encode(" the")

    def said(*parts: Part) -> list[int]:
        item = ContextItem(EntryId(bytes(32)), Message(Speaker.USER, parts), is_final=False)
        return list(renderer.extend(renderer.empty, [Listing((item,))]).context.ids[1:])

    assert said(Text("the")) == spaced
    assert said(Tokens(tuple(the), tokenizer.digest), Text("the")) == the + the
    tools = Tools((ToolDefinition("f", "", ""),))
    offered = ContextItem(EntryId(bytes(32)), tools, is_final=False)
    found = renderer.extend(renderer.empty, [Listing((offered,))]).context.ids
    heading = renderer.turns.format.heading
    assert list(found[1:])[: len(tokenizer.encode(heading))] == tokenizer.encode(heading)
