"""Errors of those who wait for an answer."""

from replica.errors import HostError, Unavailable


class AnswerOverdue(Unavailable):
    """No news of the answer arrived for too long."""

    reason = "ANSWER_OVERDUE"
    next_step = "The request stays in the log; start its host, then `antiphon log -f` shows it."


class AnswerNotBegun(AnswerOverdue):
    """No host is known to have begun the answer by the time set for it."""

    next_step = (
        "Its host refuses it from now on: send it again. If it has begun unseen, `antiphon log -f`"
        " shows it."
    )


class AnswerRefused(HostError):
    """The host refused the request; the refusal is in the log."""

    reason = "ANSWER_REFUSED"
    next_step = "Change the request, or go on elsewhere: `antiphon fork --at ENTRY`, or `at()`."
