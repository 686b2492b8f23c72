"""The arguments of a run are refused before anything is written."""

from typing import Any

import pytest

from antiphon.library.given import Given, parts_of
from replica.ids import Digest
from replica.limits import PARTS_MAX
from replica.log import LogitBias, Media, Opaque, Text, ToolCall, ToolResult
from replica.refusals import ArgumentInvalid


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sampling": {"temprature": 0.5}}, "no option 'temprature'"),
        ({"sampling": {"temperature": "hot"}}, "temperature is 'hot', not a number"),
        ({"max_tokens": 0}, "max_tokens is 0, not 1 or more"),
        ({"max_tokens": 2.5}, "max_tokens is 2.5, not a whole number"),
        ({"retries": -1}, "retries is -1, not 0 or more"),
        ({"timeout_s": "x"}, "timeout_s is 'x', not a number"),
        ({"timeout_s": float("nan")}, "timeout_s is nan, not 0 or more"),
        ({"timeout_s": 10**400}, "timeout_s is longer than any time"),
        ({"policy": 3}, "policy is 3, and no function"),
        ({"sampling": {"top_k": 2.5}}, "top_k is 2.5, not a whole number"),
        ({"sampling": {"logit_bias": 3}}, "logit_bias is 3, and no list"),
        ({"sampling": {"logit_bias": [LogitBias("a", 1.0)]}}, "'a', and no id"),
        ({"sampling": {"logit_bias": [LogitBias(True, 1.0)]}}, "True, and no id"),
        ({"key": 3}, "key is 3, and no text"),
        ({"key": ""}, "key is empty"),
        ({"key": "a\ud800"}, "key has an unpaired surrogate at 1"),
    ],
)
def test_a_wrong_argument_is_named(given: dict[str, Any], words: str):
    with pytest.raises(ArgumentInvalid, match=words):
        Given(parts_of("Hello."), **given)


@pytest.mark.parametrize("content", [None, 5, "\ud800", ["Hello."], b"Hello."])
def test_only_text_and_parts_can_be_said(content: Any):
    with pytest.raises(ArgumentInvalid):
        parts_of(content)


WRONG: list[Any] = [
    Text(None), Text(5), Text(b"x"), Text("a\ud800"), Media(b"d" * 32, -3, "image/png"),
    Media(b"d" * 32, 3, None), Media("d" * 32, 3, "image/png"), Media(b"d", 3, "image/png"),
    ToolCall(None, None, None), ToolResult("a", (Text(None),)), ToolResult("a", "text"),
    ToolResult("a", (), 2**70), Opaque("x"),
]  # type: ignore[list-item]  # fmt: skip


@pytest.mark.parametrize("part", WRONG, ids=repr)
def test_a_part_with_a_wrong_field_is_refused_by_name(part: Any):
    with pytest.raises(ArgumentInvalid, match=f"part 2 of the message, of {type(part).__name__},"):
        parts_of([Text("Hello."), part])


def test_a_refusal_does_not_repeat_a_long_part():
    with pytest.raises(ArgumentInvalid) as raised:
        parts_of([Text("x" * 100_000 + "\ud800")])
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("depth", [100, 5_000])
def test_results_in_results_without_end_are_refused(depth: int):
    part = ToolResult("a", (Text("x"),))
    for _ in range(depth):
        part = ToolResult("a", (part,))
    with pytest.raises(ArgumentInvalid, match="can't be written"):
        parts_of([part])


def test_parts_are_as_many_as_an_entry_takes():
    assert len(parts_of([Text("x")] * PARTS_MAX)) == PARTS_MAX
    with pytest.raises(ArgumentInvalid, match="257 parts, more than 256"):
        parts_of([Text("x")] * (PARTS_MAX + 1))


def test_the_parts_of_a_result_may_be_a_list():
    assert parts_of([ToolResult("a", [Text("x")])]) == (ToolResult("a", (Text("x"),)),)


def test_a_digest_is_taken_as_it_is_given():
    """Who holds the bytes is not known here."""
    parts = (
        Text("see"),
        Media(Digest(b"d" * 32), 10, "image/png"),
        Opaque("issuer", blob=Digest(b"z" * 32)),
    )
    assert parts_of(parts) == parts


def test_the_options_are_those_of_each_request():
    sampling = {"temperature": 0.5, "logit_bias": (LogitBias(1, 2.0),)}
    given = Given(parts_of([Text("Hello.")]), max_tokens=7, sampling=sampling)
    assert given.options == {"output_tokens_max": 7, "changes": sampling}
    biases = LogitBias(9, 1.0), LogitBias(5, 2.0)
    sorted_by_id = Given(parts_of([Text("Hello.")]), sampling={"logit_bias": biases})
    assert sorted_by_id.options["changes"] == {"logit_bias": biases[::-1]}
