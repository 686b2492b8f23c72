"""Functions become tools by their annotations."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import pytest

from antiphon.library.errors import ToolUnsuitable
from antiphon.library.tools import Tool, as_tools, schema_of, text_of_result, tool


def book(
    city: str,
    nights: int,
    price: float | None = None,
    kind: Literal["hotel", "hut"] = "hotel",
    tags: list[str] = [],  # noqa: B006
    extra: dict[str, Any] | None = None,
    effect_key: str = "",
) -> str:
    """Book a bed."""
    return f"{city} {nights} {price} {kind} {tags} {extra} {effect_key}"


def test_annotations_and_docstring_describe_a_tool_to_the_model():
    made = tool(effect=True)(book)
    assert (made.name, made.definition.description) == ("book", "Book a bed.")
    assert made.effect
    assert made.wants_key
    assert schema_of(book) == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "nights": {"type": "integer"},
            "price": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "kind": {"enum": ["hotel", "hut"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "extra": {"anyOf": [{"type": "object", "additionalProperties": {}}, {"type": "null"}]},
        },
        "required": ["city", "nights"],
        "additionalProperties": False,
    }


def test_a_name_and_a_description_can_be_given():
    made = tool(name="reserve", description="Reserve.")(book)
    assert (made.name, made.definition.description) == ("reserve", "Reserve.")
    assert made("Rome", 2).startswith("Rome 2")


def test_plain_functions_are_tools_without_an_effect():
    by_name = as_tools([book])
    assert isinstance(by_name["book"], Tool)
    assert not by_name["book"].effect
    with pytest.raises(ToolUnsuitable):
        as_tools([book, tool(book)])


def test_tools_that_no_entry_holds_are_refused():
    """The log refused the body, with the advice to compare it with the specification."""
    many = [tool(name=f"t{number}")(book) for number in range(3_000)]
    long = [tool(name="long", description="d" * 2**20)(book)]
    for given, words in ((many, "3,000 tools in one run: "), (long, "1 tools in one run: ")):
        with pytest.raises(ToolUnsuitable, match=words) as refused:
            as_tools(given)
        assert refused.value.next_step.startswith("Offer fewer tools")


def bare(city) -> None:  # type: ignore[no-untyped-def]
    """Has no annotation."""


def rest(*cities: str) -> None:
    """Takes no names."""


def strange(at: bytes) -> None:
    """Takes what JSON has not."""


def several(count: int) -> Iterator[int]:
    """Does nothing until it is iterated over."""
    yield count


async def several_later(count: int) -> AsyncIterator[int]:
    """Does nothing either."""
    yield count


@pytest.mark.parametrize("function", [bare, rest, strange, several, several_later])
def test_a_function_that_can_not_be_described_is_refused(function: Any):
    with pytest.raises(ToolUnsuitable):
        tool(function)


def test_a_function_of_a_class_is_refused_with_the_way_to_its_method():
    class Desk:
        def book(self, city: str) -> str:
            """Book a bed."""
            return city

    with pytest.raises(ToolUnsuitable, match="make the method of an object a tool"):
        tool(Desk.book)
    assert tool(Desk().book)("Rome") == "Rome"


def test_tools_are_a_list():
    with pytest.raises(ToolUnsuitable, match="a list of functions, not None"):
        as_tools(None)  # type: ignore[arg-type]


def test_a_result_is_text_or_json():
    assert text_of_result("Yes.") == "Yes."
    assert text_of_result({"city": "Köln", "nights": 2}) == '{"city": "Köln", "nights": 2}'
    assert text_of_result(None) == "null"


@pytest.mark.parametrize("wrong", [None, 3, "book", [book], b""])
def test_what_is_no_function_is_no_tool(wrong: Any):
    with pytest.raises(ToolUnsuitable, match="is no function"):
        as_tools([wrong])
