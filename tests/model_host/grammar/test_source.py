"""The grammar of an answer, from a request and the tools in effect."""

import json
import sys

import pytest
from llguidance import LLTokenizer, TokenizerWrapper

from model_host.grammar.source import GrammarSource, may_call, source_for
from model_host.grammar_engine import _Bytes, check, new_matcher, problem_of
from model_host.refusals import GrammarInvalid, ToolChoiceInvalid
from model_host.rendering.tool_formats import HERMES, LLAMA3, ToolFormat
from replica.ids import PublicKey, tagged_sha256
from replica.log.body import (
    FormatKind,
    Request,
    ResponseFormat,
    Sampling,
    ToolChoice,
    ToolDefinition,
)

SUM = ToolDefinition("sum", "", '{"type": "object", "properties": {"n": {"type": "integer"}}}')
NOW = ToolDefinition('now "🦊"', "", "")
TOOLS = (SUM, NOW)


def request(
    choice: int = ToolChoice.AUTO, name: str = "", form: ResponseFormat | None = None
) -> Request:
    return Request(
        PublicKey(b"h" * 32), Sampling(), response_format=form, tool_choice=choice, tool_name=name
    )


def form(kind: FormatKind, text: str) -> ResponseFormat:
    return ResponseFormat(kind, text)


def test_an_answer_without_a_form_and_tools_is_free_text() -> None:
    assert source_for(request(), (), HERMES) is None
    assert source_for(request(ToolChoice.NONE), (), HERMES) is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (FormatKind.JSON_SCHEMA, '{"type": "object"}'),
        (FormatKind.REGEX, "a/b\n|c"),
        (FormatKind.LARK, 'start: "a"'),
    ],
)
def test_a_form_is_a_grammar_that_compiles(kind: FormatKind, text: str) -> None:
    source = source_for(request(form=form(kind, text)), (), HERMES)
    assert source is not None
    assert check(source.text) == ""


@pytest.mark.parametrize("text", ["{", "[]", "1", '{"minimum": NaN}', '{"a":' * 50_000])
def test_a_schema_that_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(GrammarInvalid, match="schema"):
        source_for(request(form=form(FormatKind.JSON_SCHEMA, text)), (), HERMES)


def test_a_schema_of_any_depth_is_refused_as_one() -> None:
    refused = list[int]()
    depths = range(sys.getrecursionlimit() - 200, sys.getrecursionlimit() + 50)
    for depth in depths:
        text = '{"const": ' + "[" * depth + "]" * depth + "}"
        try:
            source_for(request(form=form(FormatKind.JSON_SCHEMA, text)), (), HERMES)
        except GrammarInvalid:
            refused.append(depth)
    assert refused == list(depths[-len(refused) :]), "and none that is less deep"
    assert 50 <= len(refused) < len(depths)


def test_a_schema_can_not_set_the_options_of_the_engine() -> None:
    text = '{"type": "string", "x-guidance": {"whitespace_flexible": true}}'
    with pytest.raises(GrammarInvalid, match="x-guidance"):
        source_for(request(form=form(FormatKind.JSON_SCHEMA, text)), (), HERMES)


def test_a_valid_schema_reaches_the_engine_as_it_is_written() -> None:
    schema = {
        "$defs": {"a": {"enum": [1, -0.5, 1e-7, {"b": [2]}], "default": 1e300}},
        "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"minimum": 0.1, "type": "number"}},
    }
    source = source_for(request(form=form(FormatKind.JSON_SCHEMA, json.dumps(schema))), (), HERMES)
    assert source is not None
    (grammar,) = json.loads(source.text)["grammars"]
    assert {**grammar["json_schema"], "x-guidance": None} == {**schema, "x-guidance": None}
    assert source.digest.hex() == "ec33583ebc4fe86985a6f553a5d0b26161288f23f7b7c0266645bf21dbc0870b"


def test_a_number_that_the_engine_would_change_is_named_with_its_tool() -> None:
    schema = '{"properties": {"user_id": {"enum": [9007199254740993]}}}'
    with pytest.raises(GrammarInvalid, match=r"'ban'.*enum.*'9007199254740993'"):
        source_for(request(), (SUM, ToolDefinition("ban", "", schema)), HERMES)


@pytest.mark.parametrize("known", [HERMES, LLAMA3])
@pytest.mark.parametrize("choice", list(ToolChoice))
def test_every_choice_of_tools_is_a_grammar_that_compiles(known: ToolFormat, choice: int) -> None:
    name = SUM.name if choice == ToolChoice.NAMED else ""
    source = source_for(request(choice, name), TOOLS, known)
    if choice == ToolChoice.NONE and known is LLAMA3:
        assert source is None  # a text that looks like a call is a text
    else:
        assert source is not None
        assert check(source.text) == ""


@pytest.mark.parametrize(
    ("asked", "tools", "words"),
    [
        (request(9), TOOLS, "not defined"),
        (request(ToolChoice.REQUIRED), (), "no tools"),
        (request(ToolChoice.NAMED, "sum"), (), "no tools"),
        (request(ToolChoice.NAMED, "other"), TOOLS, "other"),
        (request(ToolChoice.NAMED), TOOLS, "named"),
        (request(ToolChoice.AUTO, "sum"), TOOLS, "named"),
        (request(ToolChoice.REQUIRED, form=form(FormatKind.REGEX, "a")), TOOLS, "form"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(
    asked: Request, tools: tuple[ToolDefinition, ...], words: str
) -> None:
    with pytest.raises(ToolChoiceInvalid, match=words):
        source_for(asked, tools, HERMES)


def test_a_tool_whose_schema_is_no_schema_is_named() -> None:
    with pytest.raises(GrammarInvalid, match="'bad'"):
        source_for(request(), (SUM, ToolDefinition("bad", "", "[]")), HERMES)


def test_a_problem_of_the_engine_names_the_tool_whose_arguments_have_it() -> None:
    source = source_for(request(), TOOLS, HERMES)
    assert source is not None
    last = len(TOOLS) - 1
    assert source.explained(f"args_{last}: why") == f"tool {TOOLS[last].name!r}: why"
    assert source.explained(f"args_{last + 1}: why") == f"args_{last + 1}: why"
    assert GrammarSource("x").explained("args_0: why") == "args_0: why"


def test_of_two_tools_of_one_name_the_last_is_the_named_one() -> None:
    later = ToolDefinition("sum", "", '{"type": "object", "description": "later"}')
    source = source_for(request(ToolChoice.NAMED, "sum"), (SUM, later), HERMES)
    assert source is not None
    assert [g["name"] for g in json.loads(source.text)["grammars"]] == ["calls", "args_0"]
    assert "later" in source.text


@pytest.mark.parametrize("choice", [ToolChoice.AUTO, ToolChoice.REQUIRED])
def test_of_two_tools_of_one_name_only_the_last_is_called(choice: int) -> None:
    other = ToolDefinition(SUM.name, "", '{"type": "object"}')
    assert source_for(request(choice), (SUM, other), HERMES) == source_for(
        request(choice), (other,), HERMES
    )


def test_an_answer_with_a_form_calls_no_tools() -> None:
    assert may_call(request(), TOOLS)
    assert may_call(request(ToolChoice.REQUIRED), TOOLS)
    assert not may_call(request(), ())
    assert not may_call(request(ToolChoice.NONE), TOOLS)
    assert not may_call(request(form=form(FormatKind.REGEX, "a")), TOOLS)


def test_the_digest_covers_the_text_given_to_the_engine() -> None:
    assert GrammarSource("x").digest == tagged_sha256(b"antiphon/v1/grammar", b"x")


DEFINED = {
    "$defs": {
        "city": {"type": "object", "properties": {"city": {"type": "string"}}},
        "any": {"anyOf": [{"type": "object"}, {"type": "null"}]},
    }
}
UNTYPED: dict[str, dict[str, object]] = {
    "empty": {},
    "described": {"description": "Nothing is said of the type."},
    "properties": {"properties": {"a": {"type": "integer"}}},
    "several types": {"type": ["null", "object", "integer"]},
    "reference": {"$ref": "#/$defs/city", **DEFINED},
    "reference to alternatives": {"$ref": "#/$defs/any", **DEFINED},
    "all of": {"allOf": [{"$ref": "#/$defs/any"}], **DEFINED},
    "any of": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/city"}], **DEFINED},
    "one of": {"oneOf": [{"type": "integer"}, {"$ref": "#/$defs/city"}], **DEFINED},
    "constants": {"enum": [1, {"a": 2}]},
}


@pytest.mark.parametrize("known", [HERMES, LLAMA3])
@pytest.mark.parametrize("schema", UNTYPED.values(), ids=UNTYPED)
def test_the_arguments_of_a_call_are_an_object_whatever_the_schema_says(
    schema: dict[str, object], known: ToolFormat
) -> None:
    for text in (json.dumps(schema), *([""] if not schema else [])):
        source = source_for(request(ToolChoice.NAMED, "a"), [ToolDefinition("a", "", text)], known)
        assert source is not None
        head = known.call_begins + known.around_arguments("a")[0]
        assert first_bytes_behind(head, source.text) == b"{"


def first_bytes_behind(text: str, grammar: str) -> bytes:
    """Return the bytes that a grammar allows behind a text."""
    matcher = new_matcher(LLTokenizer(TokenizerWrapper(_Bytes())), grammar)
    assert matcher.consume_tokens([*text.encode()])
    assert problem_of(matcher) == ""
    mask = matcher.compute_bitmask()
    return bytes(byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1)


@pytest.mark.parametrize("kind", ["array", ["string", "null"], [], "Object", 5, None])
def test_a_tool_whose_arguments_are_no_object_is_refused_by_name(kind: object) -> None:
    tool = ToolDefinition("bad", "", json.dumps({"type": kind}))
    for choice, name in ((ToolChoice.AUTO, ""), (ToolChoice.NAMED, "bad")):
        with pytest.raises(GrammarInvalid, match=r"'bad'.*object"):
            source_for(request(choice, name), (SUM, tool), HERMES)


def test_the_schema_of_an_answer_has_any_type() -> None:
    source = source_for(request(form=form(FormatKind.JSON_SCHEMA, "{}")), (), HERMES)
    assert source is not None
    assert b"[" in first_bytes_behind("", source.text)
