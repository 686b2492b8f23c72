"""The finish detail of an answer that failed: "REASON: detail" (spec/07-host §4 step 10).

Pure.
"""

from replica.errors import HostError
from replica.ids import EntryId


class AnswerRefused(HostError):
    """The host refused the request; the refusal is in the log.

    `reason` is the reason word that the host states. `request` and `message` are the ids of what
    was refused, None where they are not known. The message stays on its branch, and so later
    requests may be refused too.
    """

    reason = "ANSWER_REFUSED"
    next_step = "Withdraw the message, by `cancel(error.message)`, or go on elsewhere, by `at()`."
    request: EntryId | None = None
    message: EntryId | None = None

    @classmethod
    def of(cls, finish_detail: str) -> "AnswerRefused":
        """Return the error of a refusal with this finish detail."""
        reason, detail = split_finish_detail(finish_detail)
        error = cls(detail)
        # An instance attribute hides the class's, because the word is the host's.
        error.__dict__["reason"] = reason or cls.reason
        return error


def split_finish_detail(text: str) -> tuple[str, str]:
    """Return the reason word of a finish detail and the rest; "" and all where it has none."""
    word, _, detail = text.partition(": ")
    is_reason = word.isascii() and word.isupper() and word.replace("_", "").isalnum()
    return (word, detail) if is_reason else ("", text)
