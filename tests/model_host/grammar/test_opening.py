"""Grammars of a tokenizer whose answers begin with a hidden space."""

import re
from dataclasses import replace

import pytest

from model_host.engine.tokenizer import Tokenizer
from model_host.errors import GrammarFailed
from model_host.generation import VisibleText
from model_host.grammar import Grammars
from model_host.grammar.grammar import Grammar
from model_host.refusals import GrammarInvalid
from replica.log.body import FormatKind
from tests.model_host.engine import tiny_pieces
from tests.model_host.engine.test_hf_pieces import read
from tests.model_host.grammar.test_grammar import ids_of, of, regex

END = tiny_pieces.TOKENS.index("</s>")
ENDS = (END,)
PATTERNS = ("the|there", " the|in", "(in)?", " ?the", "  the", "[^a]{2}")


@pytest.fixture(scope="module")
def spaced(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("spaced")
    return Tokenizer.build(read(folder, tiny_pieces.tokenizer_json()))


@pytest.fixture(scope="module")
def grammars(spaced: Tokenizer) -> Grammars:
    return Grammars(spaced, ENDS)


def names(grammar: Grammar, tokenizer: Tokenizer) -> set[str]:
    return {tokenizer.data.tokens[i] for i in ids_of(grammar, tokenizer)}


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    visible = VisibleText(tokenizer, ())
    shown = b"".join(map(visible.push, ids)) + visible.finish(can_continue=False)
    return shown.decode()


def test_a_first_token_may_have_the_space_that_the_form_lacks(
    spaced: Tokenizer, grammars: Grammars
) -> None:
    grammar = grammars.compile(regex("the|there"))
    plain, with_space = {"t", "the", "<0x74>"}, {"\u2581", "\u2581t", "\u2581the", "<0x20>"}
    assert names(grammar, spaced) == plain | with_space | {"\u2581there"}
    first = spaced.data.tokens.index("\u2581the")
    grammar.advance(first)
    assert names(grammar, spaced) == {"</s>", "r", "re", "<0x72>"}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_answer_that_a_mask_lets_through_has_the_form(
    spaced: Tokenizer, grammars: Grammars, pattern: str
) -> None:
    compiled = grammars.compile(regex(pattern))
    ends = list[str]()
    left: list[list[int]] = [[]]
    while left:
        ids = left.pop()
        grammar = compiled.behind(ids)
        if grammar.is_over:
            ends.append(text_of(spaced, ids))
            continue
        for token_id in ids_of(grammar, spaced)[:40]:
            if token_id == END:
                ends.append(text_of(spaced, ids))
            elif len(ids) < 6:
                left.append([*ids, token_id])
    assert ends
    assert all(re.fullmatch(pattern, text) for text in ends), ends


def test_the_form_of_a_turn_goes_on_at_any_split(spaced: Tokenizer, grammars: Grammars) -> None:
    compiled = grammars.compile(of(FormatKind.JSON_SCHEMA, '{"enum": ["there in here"]}'))
    for text in ('"there in here"', ' "there in here"'):
        ids = spaced.encode(text)
        for split in range(len(ids)):
            grammar = compiled.behind(ids[:split])
            for token_id in ids[split:]:
                grammar.advance(token_id)
            assert grammar.is_over
    with pytest.raises(GrammarInvalid, match="another form"):
        compiled.behind(spaced.encode('  "there'))


def test_a_space_alone_is_no_answer_that_has_no_text(spaced: Tokenizer, grammars: Grammars) -> None:
    assert names(grammars.compile(regex("")), spaced) == {"</s>"}


def test_a_tokenizer_that_shows_all_spaces_allows_none(spaced: Tokenizer) -> None:
    plain = Tokenizer.build(replace(spaced.data, pre="plain"))
    grammar = Grammars(plain, ENDS).compile(regex("the|there"))
    assert names(grammar, plain) == {"t", "the", "<0x74>"}
    with pytest.raises(GrammarFailed):
        grammar.advance(plain.data.tokens.index("\u2581the"))
