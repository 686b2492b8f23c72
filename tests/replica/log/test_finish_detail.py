"""The reason word is read from a finish detail, which is a member's text."""

import pytest

from replica.log.finish_detail import AnswerRefused, split_finish_detail


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("CALL_REPEATED: the call was answered. Ask again.", "CALL_REPEATED",
         "the call was answered. Ask again."),
        ("PROFILE_UNKNOWN", "PROFILE_UNKNOWN", ""),
        ("HOST_FAILED: a: b", "HOST_FAILED", "a: b"),
        ("no model here: sorry", "", "no model here: sorry"),
        ("Out of memory", "", "Out of memory"),
        ("BAD\x1b[2J: x", "", "BAD\x1b[2J: x"),
        ("", "", ""),
    ],
)  # fmt: skip
def test_a_reason_word_comes_before_the_first_colon(text: str, reason: str, detail: str) -> None:
    assert split_finish_detail(text) == (reason, detail)


def test_a_refusal_has_the_reason_of_its_host() -> None:
    refused = AnswerRefused.of("CONTEXT_TOO_LONG: 9,000 tokens do not fit. Branch earlier.")
    assert refused.reason == "CONTEXT_TOO_LONG"
    assert refused.detail == "9,000 tokens do not fit. Branch earlier."
    assert AnswerRefused.reason == "ANSWER_REFUSED"
    other = AnswerRefused.of("no model here")
    assert (other.reason, other.detail) == ("ANSWER_REFUSED", "no model here")
    assert AnswerRefused.of("").detail == "The host refused the request; the refusal is in the log."
