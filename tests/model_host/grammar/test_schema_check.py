"""The keywords and numbers of a schema, beside what the engine does with them."""

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from model_host.grammar.schema_check import APPLIED, INTEGER_MAX, WITHOUT_EFFECT
from model_host.grammar.source import _schema
from model_host.grammar_engine import _Bytes, new_matcher, problem_of
from model_host.refusals import GrammarInvalid

BYTES = LLTokenizer(TokenizerWrapper(_Bytes()))

VALUES: dict[str, Any] = {
    "$anchor": "a",
    "$comment": "a",
    "$defs": {"a": True},
    "$id": "http://a.example/b",
    "$ref": "#/$defs/a",
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$vocabulary": {},
    "additionalItems": False,
    "additionalProperties": False,
    "allOf": [True],
    "anyOf": [True],
    "const": 1,
    "contentEncoding": "base64",
    "contentMediaType": "text/plain",
    "contentSchema": True,
    "default": 2**60,
    "definitions": {"a": True},
    "deprecated": True,
    "description": "a",
    "discriminator": {"propertyName": "a"},
    "enum": [1],
    "example": 2**60,
    "examples": [2**60],
    "exclusiveMaximum": 9,
    "exclusiveMinimum": 1,
    "externalDocs": {"url": "http://a.example"},
    "format": "date",
    "id": "http://a.example/b",
    "items": True,
    "maxItems": 9,
    "maxLength": 9,
    "maxProperties": 9,
    "maximum": 9,
    "minItems": 1,
    "minLength": 1,
    "minProperties": 1,
    "minimum": 1,
    "multipleOf": 3,
    "oneOf": [True],
    "pattern": "a",
    "patternProperties": {"a": True},
    "prefixItems": [True],
    "properties": {"a": True},
    "readOnly": True,
    "required": ["a"],
    "title": "a",
    "type": "string",
    "writeOnly": True,
    "xml": {"name": "a"},
}
"""Every keyword known here, with a value."""

STRANGE = [
    "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef", "contains",
    "dependencies", "dependentRequired", "dependentSchemas", "else", "if", "maxContains",
    "minContains", "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    "uniqueItems",
]  # fmt: skip
"""Every other keyword of the drafts 04 to 2020-12, which the engine does not apply."""
DRAFTS = (
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2020-12/schema",
)


def compiled(schema: Any) -> LLMatcher:
    """Give a schema to the engine alone."""
    grammar = {"grammars": [{"name": "answer", "json_schema": schema}]}
    return new_matcher(BYTES, json.dumps(grammar))


def accepts(schema: Any, text: str) -> bool:
    matcher = compiled(schema)
    assert problem_of(matcher) == ""
    return matcher.consume_tokens([*text.encode()]) and matcher.is_accepting()


def refusal_of(schema: Any) -> str:
    """Return why a schema is refused here; empty where it is not."""
    try:
        _schema(schema if isinstance(schema, str) else json.dumps(schema))
    except GrammarInvalid as error:
        return error.detail
    return ""


# --- keywords -----------------------------------------------------------------------------


def test_the_keywords_known_here_are_those_with_a_value() -> None:
    assert VALUES.keys() == APPLIED | WITHOUT_EFFECT


@pytest.mark.parametrize("keyword", VALUES)
def test_the_engine_compiles_every_keyword_known_here(keyword: str) -> None:
    schema = {"$defs": {"a": True}, keyword: VALUES[keyword]}
    assert refusal_of(schema) == ""
    assert problem_of(compiled(schema)) == ""


@pytest.mark.parametrize("keyword", sorted(WITHOUT_EFFECT - {"$schema"}))
def test_a_keyword_without_effect_has_none(keyword: str) -> None:
    schema = {"type": "integer", keyword: VALUES[keyword]}
    assert accepts(schema, "12")
    assert not accepts(schema, '"a"')


@pytest.mark.parametrize("keyword", STRANGE)
def test_a_keyword_that_the_engine_does_not_apply_is_refused_under_every_draft(
    keyword: str,
) -> None:
    assert f"'{keyword}'" in refusal_of({keyword: True})
    for draft in DRAFTS:
        assert f"'{keyword}'" in refusal_of({"$schema": draft, "type": "object", keyword: {}})
    assert "Unimplemented keys" in problem_of(compiled({"type": "object", keyword: {}}))


BELOW = {
    "properties": lambda one: {"properties": {"a": one}},
    "pattern properties": lambda one: {"patternProperties": {"^a": one}},
    "additional properties": lambda one: {"additionalProperties": one},
    "items": lambda one: {"items": one},
    "items by index": lambda one: {"items": [True, one]},
    "additional items": lambda one: {"additionalItems": one},
    "prefix items": lambda one: {"prefixItems": [True, one]},
    "all of": lambda one: {"allOf": [one]},
    "any of": lambda one: {"anyOf": [True, one]},
    "one of": lambda one: {"oneOf": [one]},
    "definitions": lambda one: {"definitions": {"a": one}},
    "$defs": lambda one: {"$defs": {"a": one}},
    "content": lambda one: {"contentSchema": one},
    "deep": lambda one: {"properties": {"a": {"items": {"anyOf": [{"properties": {"b": one}}]}}}},
    "a list where names belong": lambda one: {"properties": [one]},
}


@pytest.mark.parametrize("place", BELOW.values(), ids=BELOW)
def test_an_unknown_keyword_is_refused_by_name_wherever_a_schema_is(place: Any) -> None:
    assert "'maxlength'" in refusal_of(place({"type": "string", "maxlength": 3}))
    assert "'foo'" in refusal_of(place({"foo": 1}))
    assert "minimum" in refusal_of(place({"minimum": 2**53}))
    assert refusal_of(place({"type": "string", "maxLength": 3})) == ""


def test_names_of_properties_and_values_are_no_keywords() -> None:
    for schema in (
        {"properties": {"maxlength": {"type": "string"}}},
        {"const": {"foo": 1}},
        {"enum": [{"foo": 1}]},
        {"default": {"foo": 1}, "examples": [{"foo": 1}]},
        {"required": ["foo"]},
    ):
        assert refusal_of(schema) == ""


def test_a_long_name_is_cut_in_the_refusal() -> None:
    assert len(refusal_of({"x" * 100_000: 1})) < 200


# --- references ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reference",
    ["#", "#/$defs/a", "#/properties/a", "#/items/0", "#/items", "#/anyOf/1", "#/%24defs/a",
     "#a", "#/allOf/0/properties/b/items", "http://a.example/b", "http://a.example/b#/$defs/a"],
)  # fmt: skip
def test_a_reference_to_a_schema_may_be_one(reference: str) -> None:
    assert refusal_of({"$ref": reference}) == ""


@pytest.mark.parametrize(
    "reference",
    ["#/default", "#/%64efault", "#/examples/0", "#/const", "#/enum/0", "#/properties", "#/anyOf",
     "#/properties/a/default", "#/discriminator", "#/", "#/items/0/default", "#/required",
     "http://a.example/b#/default"],
)  # fmt: skip
def test_a_reference_to_a_place_without_a_schema_is_refused(reference: str) -> None:
    assert "leads to no schema" in refusal_of({"$ref": reference})


# --- numbers ------------------------------------------------------------------------------

NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "const")


@pytest.mark.parametrize("keyword", NUMERIC)
@pytest.mark.parametrize(
    "number",
    [str(2**53), str(-(2**53)), str(2**53 + 1), str(2**63 - 1), str(-(2**63)), str(10**30), "1e16",
     "1e999999999", "3.0000000000000000001", "4503599627370497.5", "0.1234567890123456",
     "1e-23", "9007199254740991.0"],
)  # fmt: skip
def test_a_number_that_the_engine_would_change_is_refused_by_name(
    keyword: str, number: str
) -> None:
    detail = refusal_of(f'{{"{keyword}": {number}}}')
    assert detail.startswith(f"{keyword} has the number '{number}'")


@pytest.mark.parametrize("nested", ['{"a": [1, %s]}', "[[%s]]", '{"a": {"b": %s}}'])
def test_numbers_within_constants_are_refused_too(nested: str) -> None:
    value = nested % (2**53 + 1)
    assert "const has the number" in refusal_of(f'{{"const": {value}}}')
    assert "enum has the number" in refusal_of(f'{{"enum": [1, {value}]}}')


def test_the_engine_changes_integers_that_are_refused() -> None:
    assert accepts({"const": 2**53 + 1}, str(2**53))
    assert not accepts({"const": 2**53 + 1}, str(2**53 + 1))
    assert accepts({"type": "integer", "exclusiveMinimum": 2**53}, str(2**53))


@pytest.mark.parametrize("number", [INTEGER_MAX, -INTEGER_MAX, INTEGER_MAX - 1, 0, 1, 10**15])
def test_integers_that_are_kept_bound_exactly(number: int) -> None:
    assert refusal_of({"const": number}) == ""
    assert accepts({"const": number}, str(number))
    for below, at, keyword in (
        (False, True, "minimum"),
        (True, True, "maximum"),
        (False, False, "exclusiveMinimum"),
        (True, False, "exclusiveMaximum"),
    ):
        schema = {"type": "integer", keyword: number}
        found = [accepts(schema, str(number + step)) for step in (-1, 0, 1)]
        assert found == [below, at, not below], keyword


def test_decimals_that_are_kept_are_exact() -> None:
    chance = random.Random(7)
    for _ in range(100):
        digits = chance.randrange(1, 16)
        number = Decimal(chance.randrange(10**digits)).scaleb(-chance.randrange(1, 23))
        text = f"{number:f}"
        assert refusal_of(f'{{"const": {text}}}') == ""
        assert accepts({"const": json.loads(text)}, text.rstrip("0").rstrip("."))
