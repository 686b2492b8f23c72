"""The engine of grammars: its problems in plain words, and its limits."""

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from model_host.grammar.source import JSON_OPTIONS
from model_host.grammar_engine import (
    ENGINE,
    PROBLEM_CHARACTERS_MAX,
    _Bytes,
    check,
    new_matcher,
    problem_of,
    problem_of_one,
)


def lark(text: str) -> str:
    return json.dumps({"grammars": [{"name": "answer", "lark_grammar": text}]})


def schema(value: dict[str, Any]) -> str:
    options = {**value, "x-guidance": JSON_OPTIONS}
    return json.dumps({"grammars": [{"name": "answer", "json_schema": options}]})


def test_the_engine_is_named_with_its_version() -> None:
    name, version = ENGINE.split(" ")
    assert name == "llguidance"
    assert version[0].isdigit()


def test_a_grammar_that_compiles_has_no_problem() -> None:
    assert check(lark('start: "a" | "b"')) == ""


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ("start: nope", 'unknown name: "nope"'),
        ("start: /(/", "invalid regex"),
        ('start: "a" <|im_end|>', "unknown special token"),
        ("start: " + "(" * 5_000 + '"a"' + ")" * 5_000, "too deeply nested"),
        ('start: start\nstart: "\x1b[31m"', "?[31m"),
    ],
)
def test_a_problem_is_one_line_of_printable_text(grammar: str, words: str) -> None:
    problem = check(lark(grammar))
    assert words in problem
    assert problem.isprintable()
    assert len(problem) <= PROBLEM_CHARACTERS_MAX


def test_the_problem_of_one_of_several_grammars_begins_with_its_name() -> None:
    """Of several tools nothing said whose schema was wrong."""
    impossible = {"type": "object", "required": ["a"], "additionalProperties": False}
    given = {"args_0": {"type": "object"}, "args_1": impossible}
    grammars: list[dict[str, Any]] = [{"name": "calls", "lark_grammar": "start: @args_0 | @args_1"}]
    grammars += [{"name": name, "json_schema": one} for name, one in given.items()]
    alone = check(schema(impossible))
    assert alone
    assert problem_of_one(json.dumps({"grammars": grammars})) == f"args_1: {alone}"
    grammars[0]["lark_grammar"] = "start: nope"
    del grammars[2]
    assert problem_of_one(json.dumps({"grammars": grammars})) == ""


def test_a_problem_shows_nothing_of_the_engines_state() -> None:
    matcher = new_matcher(LLTokenizer(TokenizerWrapper(_Bytes())), lark('start: "ab"'))
    assert not matcher.consume_token(ord("x"))
    assert "state" not in problem_of(matcher)
    assert "backtrace" not in problem_of(matcher)


@pytest.mark.parametrize(
    "grammar",
    [
        "start: /((a{1,1000}){1,1000}){1,1000}/",
        "start: /(a?){5000}a{5000}/",
        "start: a0\n" + "\n".join(f"a{i}: a{i + 1} a{i + 1}" for i in range(60)) + '\na60: "x"',
    ],
)
def test_a_hostile_grammar_reaches_a_limit_not_the_end_of_memory(grammar: str) -> None:
    assert "too many" in check(lark(grammar)).lower()


RECURSIVE = {"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}
NESTED = {
    "$ref": "#/$defs/a",
    "$defs": {"a": RECURSIVE | {"properties": {"x": {"$ref": "#/$defs/a"}}}},
}


@pytest.mark.parametrize(
    "grammar",
    [schema(RECURSIVE), schema(NESTED), lark('start: "a" start'), lark("start: " + '"a" ' * 6_000)],
)  # fmt: skip
def test_a_grammar_whose_only_text_is_endless_is_said_to_be_one(grammar: str):
    assert (
        check(grammar)
        == "too many tokens follow without an alternative: the text never ends, or is too long"
    )


@pytest.mark.parametrize(
    "grammar",
    [lark("start: start"), LLMatcher.grammar_from_regex(r"[^\x00-\x{10FFFF}]"),
     LLMatcher.grammar_from_json_schema('{"$ref": "#"}')],
)  # fmt: skip
def test_a_grammar_that_no_text_has_is_said_to_be_one(grammar: str):
    assert check(grammar) == "no text has its form"
