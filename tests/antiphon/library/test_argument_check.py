"""What a model gives as arguments, against the annotations of the tool."""

import json
from typing import Any, Literal

import pytest

from antiphon.library.argument_check import wrong_argument
from antiphon.library.tools import schema_of


def book(
    city: Literal["Rome", "Paris"],
    nights: int,
    *,
    price: float | None = None,
    tags: list[str] | None = None,
    extra: dict[str, list[int]] = {},  # noqa: B006
    level: Literal[1, 2] = 1,
    anything: Any = None,
    is_late: bool = False,
    rooms: list[list[int]] = [],  # noqa: B006
) -> None:
    """Book."""


SCHEMA = json.dumps(schema_of(book))
RIGHT = (
    {"city": "Rome", "nights": 3},
    {"city": "Paris", "nights": -1, "price": None, "tags": None},
    {"city": "Paris", "nights": 10**30, "price": 3, "tags": [], "extra": {}},
    {"price": 1.5, "tags": ["a"], "extra": {"a": [1, 2]}, "level": 2, "is_late": True},
    {"anything": {"of": ["any", 3]}, "rooms": [[1], []]},
    {},
    {"unknown": object},
)


@pytest.mark.parametrize("arguments", RIGHT)
def test_what_the_annotations_allow_is_right(arguments: dict[str, Any]):
    assert wrong_argument(SCHEMA, arguments) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"city": "Hell", "nights": "3"}, '\'city\' is "Hell", and not one of "Rome", "Paris"'),
        ({"nights": "3"}, "'nights' is \"3\", and not a whole number"),
        ({"nights": True}, "'nights' is true, and not a whole number"),
        ({"nights": 3.0}, "'nights' is 3.0, and not a whole number"),
        ({"nights": None}, "'nights' is null, and not a whole number"),
        ({"price": "1.5"}, "'price' is \"1.5\", and not a number or null"),
        ({"price": False}, "'price' is false, and not a number or null"),
        ({"is_late": 1}, "'is_late' is 1, and not true or false"),
        ({"is_late": "yes"}, "'is_late' is \"yes\", and not true or false"),
        ({"level": True}, "'level' is true, and not one of 1, 2"),
        ({"tags": "a"}, "'tags' is \"a\", and not a list or null"),
        ({"tags": ["a", 3]}, "'tags'[1] is 3, and not a text"),
        ({"extra": []}, "'extra' is [], and not an object"),
        ({"extra": {"a": 3}}, "'extra'[\"a\"] is 3, and not a list"),
        ({"extra": {"a": [1, "2"]}}, '\'extra\'["a"][1] is "2", and not a whole number'),
        ({"rooms": [[1], [None]]}, "'rooms'[1][0] is null, and not a whole number"),
    ],
)
def test_the_first_wrong_one_is_named(arguments: dict[str, Any], words: str):
    assert wrong_argument(SCHEMA, arguments) == words


def test_a_long_value_is_cut():
    words = wrong_argument(SCHEMA, {"nights": "x" * 10_000})
    assert words is not None
    assert len(words) < 150


@pytest.mark.parametrize(
    "schema",
    [
        "no JSON", "[" * 100_000, "null", "3", "[]", "{}", '{"properties": 3}',
        '{"properties": []}',
        '{"properties": {"a": true}}', '{"properties": {"a": {"type": "text"}}}',
        '{"properties": {"a": {"type": ["integer", 3]}}}', '{"properties": {"a": {"enum": 3}}}',
        '{"properties": {"a": {"anyOf": []}}}', '{"properties": {"a": {"anyOf": {}}}}',
        '{"properties": {"a": {"$ref": "#/$defs/b"}}}', '{"additionalProperties": false}',
        '{"properties": {"a": {"type": "string", "minLength": 20}}}', '{"required": ["b"]}',
        '{"properties": {"a": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/b"}]}}}',
    ],
)  # fmt: skip
def test_what_is_not_known_of_a_schema_is_passed_over(schema: str):
    assert wrong_argument(schema, {"a": "text"}) is None


def test_a_schema_of_the_programs_own_may_state_several_types():
    schema = json.dumps({"properties": {"a": {"type": ["integer", "null"]}}})
    assert wrong_argument(schema, {"a": None}) is None
    assert wrong_argument(schema, {"a": "3"}) == "'a' is \"3\", and not a whole number or null"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, ["x", 1]),
        ({"patternProperties": {"^a": {"type": "integer"}},
          "additionalProperties": {"type": "string"}}, {"ab": 3}),
    ],
)  # fmt: skip
def test_what_other_keywords_decide_is_passed_over(schema: dict[str, Any], value: object) -> None:
    schema = {"type": "object", "properties": {"a": schema}}
    assert wrong_argument(json.dumps(schema), {"a": value}) is None
