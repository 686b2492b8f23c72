"""Refusals: each has a reason, a detail and a next step."""

import pytest

from model_host import refusals
from model_host.refusals import (
    GenerationRefused,
    TokenizerBytesMissing,
    cleaned,
    finish_detail,
)
from replica.errors import HostError, StoreError

KINDS = [k for k in GenerationRefused.__subclasses__() if k is not TokenizerBytesMissing]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_generation_says_reason_detail_and_next_step(kind: type[GenerationRefused]) -> None:
    assert kind.__module__ == refusals.__name__
    said = finish_detail(kind("what it was about"))
    assert said == f"{kind.reason}: what it was about. {kind.next_step}"


def test_a_failure_that_is_no_refusal_has_a_detail_of_the_same_form() -> None:
    error = HostError("The host failed.")
    assert finish_detail(error) == f"{error.reason}: The host failed. {error.next_step}"


def test_members_are_told_no_path_of_the_host() -> None:
    said = finish_detail(StoreError("/srv/host/log.db was moved"))
    assert said == f"STORE_FAILED: The store failed. {StoreError.next_step}"


def test_bytes_the_vocabulary_lacks_are_named() -> None:
    error = TokenizerBytesMissing(bytes_missing=b"\x04\x1d")
    assert error.bytes_missing == b"\x04\x1d"
    assert "04 1d" in finish_detail(error)


def test_foreign_words_are_one_line_of_printable_text_and_cut() -> None:
    assert cleaned(" a\n\tb\x00\x1b[1m\ud800 é ", 99) == "a b??[1m? é"
    assert cleaned("x" * 1000, 5) == "xxxxx"
    assert cleaned("\n \t", 5) == ""
