"""A body as the log gives it back."""

import pytest

from replica.limits import BODY_BYTES_MAX
from replica.log.body import Message, Speaker, Text, ToolDefinition, Tools
from replica.log.read_back import read_back
from replica.refusals import BodyMalformed, BodyTooLarge


def said(text: str) -> Message:
    return Message(Speaker.USER, (Text(text),))


def test_a_body_that_can_be_written_comes_back() -> None:
    assert read_back(said("Hello.")) == said("Hello.")


def test_a_body_that_is_too_large_or_has_too_many_fields_is_refused() -> None:
    with pytest.raises(BodyTooLarge, match="524,318 bytes, of 524,288"):
        read_back(said("x" * BODY_BYTES_MAX))
    with pytest.raises(BodyMalformed, match="fields"):
        read_back(Tools(tuple(ToolDefinition(f"t{n}", "", "{}") for n in range(5_000))))


def test_the_largest_body_that_can_be_written_comes_back() -> None:
    beside = 524_318 - BODY_BYTES_MAX  # bytes of such a message besides its text
    largest = said("x" * (BODY_BYTES_MAX - beside))
    assert read_back(largest) == largest
    with pytest.raises(BodyTooLarge, match="524,289 bytes, of 524,288"):
        read_back(said("x" * (BODY_BYTES_MAX - beside + 1)))
