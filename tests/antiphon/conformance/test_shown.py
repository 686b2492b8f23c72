"""How values of answers are compared and shown."""

import pytest

from antiphon.conformance.shown import SHOWN_MAX, as_json, contrast, is_same


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        (True, 1, False), (0, False, False), ([True], [1], False), ({"a": 1}, {"a": True}, False),
        (True, True, True), (1.0, 1, True), (1e300, 1e300, True), (None, None, True),
        ([1, {"a": [False]}], [1, {"a": [False]}], True), ([1], [1, 2], False),
        ({"a": 1}, {"a": 1, "b": 2}, False), ("1", 1, False), (None, False, False),
    ],
)  # fmt: skip
def test_true_is_no_number(found: object, wanted: object, same: bool) -> None:
    assert is_same(found, wanted) is same


def test_short_values_are_shown_whole() -> None:
    assert contrast("x", "1", "2") == "x is 1, must be 2"


def test_long_values_are_shown_where_they_differ() -> None:
    text = contrast("x", "a" * 1_000 + "b" + "c" * 1_000, "a" * 1_000 + "d" + "c" * 1_000)
    found, _, wanted = text.partition(", must be ")
    assert found != f"x is {wanted}"
    assert "ab" in found and "ad" in wanted
    assert text.endswith("(they differ from character 1001 on)")
    assert len(text) < 3 * SHOWN_MAX
    end = contrast("x", "a" * 400, "a" * 400 + "b")
    assert end.endswith("must be …" + "a" * 100 + "b (they differ from character 401 on)")


def test_a_value_that_is_nested_too_deeply_has_words() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    assert as_json(nested) == "a value that is nested too deeply"
    assert as_json({"a": None}) == '{"a": null}'
