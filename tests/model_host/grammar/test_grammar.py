"""The tokens a grammar allows, with the real vocabulary."""

import json

import numpy as np
import pytest

from model_host.engine.tokenizer import Tokenizer
from model_host.errors import GrammarFailed, ReplayTooLarge
from model_host.generation import CallingText, VisibleText
from model_host.grammar import grammar as grammar_module
from model_host.grammar.grammar import Grammar, Grammars, SharedGrammars, Vocabulary
from model_host.grammar.source import GrammarSource, source_for
from model_host.refusals import GrammarInvalid
from model_host.rendering.tool_formats import HERMES, LLAMA3, ToolFormat
from model_host.sampling.state import allowed_ids
from replica.log.body import FormatKind, ToolChoice, ToolDefinition
from tests.model_host.grammar.test_source import form, request

END = 2
PERSON = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)
SUM = ToolDefinition(
    "sum", "", '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
)


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary(tokenizer, {END, 0})


def of(kind: FormatKind, text: str) -> GrammarSource:
    source = source_for(request(form=form(kind, text)), (), HERMES)
    assert source is not None
    return source


def regex(text: str) -> GrammarSource:
    return of(FormatKind.REGEX, text)


def of_tools(choice: int, known: ToolFormat = HERMES) -> GrammarSource:
    source = source_for(request(choice), (SUM,), known)
    assert source is not None
    return source


def ids_of(grammar: Grammar, tokenizer: Tokenizer) -> list[int]:
    found: list[int] = np.flatnonzero(allowed_ids(grammar.mask(), tokenizer.token_count)).tolist()
    return found


def accepts(grammar: Grammar, tokenizer: Tokenizer, text: str) -> bool:
    """Say whether each token of a text is allowed in turn; advance over them."""
    for token_id in tokenizer.encode(text):
        if token_id not in ids_of(grammar, tokenizer):
            return False
        grammar.advance(token_id)
    return True


def test_a_mask_has_a_bit_for_each_id(vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
    grammar = Grammar(regex("[ab]"), vocabulary)
    mask = grammar.mask()
    assert mask.dtype == np.int32
    assert len(mask) == -(-tokenizer.token_count // 32)
    assert sorted(tokenizer.token_bytes(i) for i in ids_of(grammar, tokenizer)) == [b"a", b"b"]


def test_an_id_that_ends_a_turn_is_allowed_only_where_the_grammar_may_end(
    vocabulary: Vocabulary, tokenizer: Tokenizer
) -> None:
    grammar = Grammar(of(FormatKind.LARK, f'start: "a" (<[{END}]> | "c") "b"'), vocabulary)
    assert accepts(grammar, tokenizer, "a")
    assert END not in ids_of(grammar, tokenizer)
    assert accepts(grammar, tokenizer, "cb")
    assert grammar.is_over
    only = Grammar(of(FormatKind.LARK, f'start: "a" <[{END}]> "b"'), vocabulary)
    assert accepts(only, tokenizer, "a")
    with pytest.raises(GrammarFailed):
        only.mask()


def test_a_schema_allows_what_it_describes_alone(
    vocabulary: Vocabulary, tokenizer: Tokenizer
) -> None:
    source = of(FormatKind.JSON_SCHEMA, PERSON)
    grammar = Grammar(source, vocabulary)
    assert accepts(grammar, tokenizer, '{"name": "Ada", "age": 36')
    assert not grammar.is_accepting
    assert not grammar.is_over
    assert accepts(grammar, tokenizer, "}")
    assert grammar.is_over
    for text in ('{"name": 1', '{"age"', '{ "name"', "Sure: "):
        assert not accepts(Grammar(source, vocabulary), tokenizer, text)


def test_the_end_of_a_turn_is_allowed_only_where_the_grammar_may_end(
    vocabulary: Vocabulary, tokenizer: Tokenizer
) -> None:
    grammar = Grammar(regex("a+"), vocabulary)
    assert END not in ids_of(grammar, tokenizer)
    assert accepts(grammar, tokenizer, "a")
    assert grammar.is_accepting
    assert {0, END} < {*ids_of(grammar, tokenizer)}
    assert not grammar.is_over


@pytest.mark.parametrize("text", [r"(.|\n)*", r"[^x]*", ".*"])
def test_no_other_control_token_is_allowed_ever(
    vocabulary: Vocabulary, tokenizer: Tokenizer, text: str
) -> None:
    grammar = Grammar(regex(text), vocabulary)
    allowed = ids_of(grammar, tokenizer)
    assert len(allowed) > 40_000
    assert [i for i in allowed if tokenizer.is_control(i)] == [0, END]


def test_a_grammar_that_names_control_tokens_is_refused_or_stuck(
    vocabulary: Vocabulary, tokenizer: Tokenizer
) -> None:
    with pytest.raises(GrammarInvalid, match="unknown special token"):
        Grammar(of(FormatKind.LARK, "start: <|im_start|>"), vocabulary)
    numbered = Grammar(of(FormatKind.LARK, 'start: "a" | <[1]>'), vocabulary)
    assert 1 not in ids_of(numbered, tokenizer)
    with pytest.raises(GrammarFailed, match="No token"):
        Grammar(of(FormatKind.LARK, "start: <[1]>"), vocabulary).mask()


def test_a_grammar_that_needs_a_byte_the_vocabulary_lacks_is_stuck(
    vocabulary: Vocabulary, tokenizer: Tokenizer
) -> None:
    grammar = Grammar(regex("ab\x04c"), vocabulary)
    assert accepts(grammar, tokenizer, "ab")
    with pytest.raises(GrammarFailed):
        grammar.mask()


def test_replayed_tokens_give_the_same_masks(vocabulary: Vocabulary, tokenizer: Tokenizer) -> None:
    source = of(FormatKind.JSON_SCHEMA, PERSON)
    ids = tokenizer.encode('{"name": "Ada Lovelace", "age": 36}')
    whole = Grammar(source, vocabulary)
    for count, token_id in enumerate(ids):
        again = Grammar(source, vocabulary, ids[:count])
        assert (again.mask() == whole.mask()).all()
        whole.advance(token_id)
    assert Grammar(source, vocabulary, ids).is_over


def test_the_mask_at_each_recorded_token_is_the_one_it_was_chosen_under(
    vocabulary: Vocabulary, tokenizer: Tokenizer
) -> None:
    source = of(FormatKind.JSON_SCHEMA, PERSON)
    ids = [*tokenizer.encode('{"name": "Ada Lovelace", "age": 36}')]
    replayed = Grammars(tokenizer, {END, 0}).compile(source, ids[:3])
    for count in range(3, len(ids)):
        again = Grammar(source, vocabulary, ids[:count])
        assert (again.mask() == replayed.mask()).all()
        replayed.advance(ids[count])
    assert replayed.is_over


def test_answers_under_one_grammar_share_what_is_compiled_and_no_state(
    vocabulary: Vocabulary, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, compiled = of(FormatKind.JSON_SCHEMA, PERSON), list[GrammarSource]()

    class Counting(Grammars):
        def compile(self, source, continued=()):
            compiled.append(source)
            return super().compile(source, continued)

    shared = SharedGrammars(Counting(tokenizer, {END, 0}))
    ids = tokenizer.encode('{"name": "Ada", "age": 36}')
    one, other = shared.compile(source), shared.compile(source, ids[:5])
    for count, token_id in enumerate(ids):
        alone = Grammar(source, vocabulary, ids[:count])
        assert (one.mask() == alone.mask()).all()
        one.advance(token_id)
    assert (one.is_over, other.is_over) == (True, False)
    assert (other.mask() == Grammar(source, vocabulary, ids[:5]).mask()).all()
    with pytest.raises(GrammarInvalid):
        shared.compile(source, ids[3:])
    assert (shared.compile(source).mask() == Grammar(source, vocabulary).mask()).all()
    assert compiled == [source]
    monkeypatch.setattr(grammar_module, "REPLAY_GRAMMAR_BYTES_MAX", len(source.text))
    shared.check_room(source)
    with pytest.raises(ReplayTooLarge):
        shared.check_room(regex("a"))


def test_a_recorded_token_that_is_not_allowed_is_refused(
    vocabulary: Vocabulary, tokenizer: Tokenizer
) -> None:
    grammar = Grammar(regex("ab+"), vocabulary, tokenizer.encode("a"))
    assert not allowed_ids(grammar.mask(), tokenizer.token_count)[END]  # the caller sees it here
    with pytest.raises(GrammarFailed):
        grammar.advance(END)


def test_an_answer_that_is_complete_may_end_its_turn(
    vocabulary: Vocabulary, tokenizer: Tokenizer
) -> None:
    grammar = Grammar(regex("ab+"), vocabulary, tokenizer.encode("ab"))
    assert allowed_ids(grammar.mask(), tokenizer.token_count)[END]
    grammar.advance(END)


def test_a_token_that_is_not_allowed_is_no_step(
    vocabulary: Vocabulary, tokenizer: Tokenizer
) -> None:
    with pytest.raises(GrammarFailed):
        Grammar(regex("a"), vocabulary).advance(tokenizer.encode("b")[0])


def test_an_answer_of_another_form_can_not_be_continued(
    vocabulary: Vocabulary, tokenizer: Tokenizer
) -> None:
    with pytest.raises(GrammarInvalid, match="another form"):
        Grammar(regex("[0-9]+"), vocabulary, tokenizer.encode("one"))


CALL = '<tool_call>\n{"name": "sum", "arguments": {"n": 7}}\n</tool_call>'
BARE = '{"name": "sum", "parameters": {"n": 7}}'


@pytest.mark.parametrize(
    ("choice", "known", "text", "is_allowed"),
    [
        (ToolChoice.AUTO, HERMES, "Let me see: 3 < 4, <tool>.", True),
        (ToolChoice.AUTO, HERMES, f"Let me see.\n{CALL}\n{CALL} So.", True),
        (ToolChoice.AUTO, HERMES, '<tool_call>\n{"name": "product"', False),
        (ToolChoice.AUTO, HERMES, CALL.replace("7", '"7"'), False),
        (ToolChoice.AUTO, LLAMA3, "So: {", True),
        (ToolChoice.AUTO, LLAMA3, BARE, True),
        (ToolChoice.AUTO, LLAMA3, '{"answer"', False),
        (ToolChoice.REQUIRED, HERMES, f"{CALL}\n{CALL}", True),
        (ToolChoice.REQUIRED, HERMES, "Let", False),
        (ToolChoice.REQUIRED, LLAMA3, BARE, True),
        (ToolChoice.NONE, HERMES, "Let me see: <tool_cal", True),
        (ToolChoice.NONE, HERMES, "<tool_call>", False),
    ],
)
def test_the_choice_of_tools_decides_what_may_be_called(
    vocabulary: Vocabulary,
    tokenizer: Tokenizer,
    choice: int,
    known: ToolFormat,
    text: str,
    is_allowed: bool,
) -> None:
    grammar = Grammar(of_tools(choice, known), vocabulary)
    assert accepts(grammar, tokenizer, text) == is_allowed


@pytest.mark.parametrize(("known", "text"), [(HERMES, CALL), (LLAMA3, BARE)])
def test_a_call_that_the_grammar_allows_is_read_as_one(
    vocabulary: Vocabulary, tokenizer: Tokenizer, known: ToolFormat, text: str
) -> None:
    grammar = Grammar(of_tools(ToolChoice.AUTO, known), vocabulary)
    assert accepts(grammar, tokenizer, text)
    reader = CallingText(VisibleText(tokenizer, ()), known)
    shown = b"".join(map(reader.push, tokenizer.encode(text)))
    assert shown + reader.finish(can_continue=False) == b""
    assert [(call.name, call.arguments_json) for call in reader.calls] == [("sum", '{"n": 7}')]
