"""Grammars of a tokenizer whose answers begin with a hidden space."""

import re
from dataclasses import replace

import pytest
from llguidance import LLMatcher, LLTokenizer

from model_host import grammar_engine
from model_host.engine.tokenizer import Tokenizer
from model_host.errors import GrammarFailed
from model_host.generation import VisibleText
from model_host.grammar import Grammars
from model_host.grammar import grammar as grammar_module
from model_host.grammar.grammar import Grammar
from model_host.refusals import GrammarInvalid
from replica.log.body import FormatKind
from tests.model_host.engine import tiny_pieces
from tests.model_host.engine.test_hf_pieces import read
from tests.model_host.grammar.test_grammar import ids_of, of, regex

END = tiny_pieces.TOKENS.index("</s>")
ENDS = (END,)
MANY = "start: e\ne: C | e e\nC: /[\\s\\S]/"
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


def test_a_form_that_no_token_with_a_space_may_begin_has_the_bare_space(
    spaced: Tokenizer, grammars: Grammars
) -> None:
    bare = {"\u2581", "<0x20>"}
    assert names(grammars.compile(regex("🦊?the")), spaced) >= bare | {"\u2581the", "<0xF0>"}
    for pattern in ("🦊the", "🦊there|🦊the", "🦊 the"):  # the first byte is forced
        assert names(grammars.compile(regex(pattern)), spaced) == bare | {"<0xF0>"}


@pytest.mark.parametrize("pattern", [*PATTERNS, "there in here", "t.*", "🦊there|the"])
def test_the_tokens_that_may_begin_are_those_whose_rest_fits(
    spaced: Tokenizer, grammars: Grammars, pattern: str
) -> None:
    grammar = grammars.compile(regex(pattern))
    for token_id in ids_of(grammar, spaced):
        rest = spaced.token_bytes(token_id).removeprefix(b" ")
        try:
            text = rest.decode()
        except UnicodeDecodeError:
            continue
        grammars.compile(regex(f"({pattern})(.|\n)*"), spaced.encode(text))
        grammar.behind([token_id])


def test_a_form_with_many_readings_is_asked_once_for_all_tokens(
    spaced: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = list[str]()

    def new_matcher(backend: LLTokenizer, text: str) -> LLMatcher:
        compiled.append(text)
        return grammar_engine.new_matcher(backend, text)

    monkeypatch.setattr(grammar_module, "new_matcher", new_matcher)
    grammar = Grammars(spaced, ENDS).compile(of(FormatKind.LARK, MANY))
    assert len(compiled) == 2
    for _ in range(3):
        grammar.behind(()).mask()
    assert len(compiled) == 2


def test_a_space_alone_is_no_answer_that_has_no_text(spaced: Tokenizer, grammars: Grammars) -> None:
    assert names(grammars.compile(regex("")), spaced) == {"</s>"}


def test_a_tokenizer_that_shows_all_spaces_allows_none(spaced: Tokenizer) -> None:
    plain = Tokenizer.build(replace(spaced.data, pre="plain"))
    grammar = Grammars(plain, ENDS).compile(regex("the|there"))
    assert names(grammar, plain) == {"t", "the", "<0x74>"}
    with pytest.raises(GrammarFailed):
        grammar.advance(plain.data.tokens.index("\u2581the"))
