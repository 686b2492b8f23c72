"""The finish detail of an answer that failed: "REASON: detail" (spec/07-host §4 step 10).

Pure.
"""

from replica.errors import HostError


class AnswerRefused(HostError):
    """The host refused the request; the refusal is in the log."""

    reason = "ANSWER_REFUSED"
    next_step = "Change the request, or go on elsewhere: `antiphon fork --at ENTRY`, or `at()`."


def split_finish_detail(text: str) -> tuple[str, str]:
    """Return the reason word of a finish detail and the rest; "" and all where it has none."""
    word, _, detail = text.partition(": ")
    is_reason = word.isascii() and word.isupper() and word.replace("_", "").isalnum()
    return (word, detail) if is_reason else ("", text)
