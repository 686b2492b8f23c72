"""Errors of those who wait for an answer."""

from collections.abc import Sequence
from typing import Any

from replica.conversation import OpenCall
from replica.errors import AntiphonError, Unavailable, with_step
from replica.ids import EntryId
from replica.io.driver import HubStatus, means_away
from replica.refusals import HubUnreachable


class AnswerOverdue(Unavailable):
    """No news of the answer arrived for too long.

    `request` is the id of its request, None where another run has the key and may not have
    asked yet. While the hub is not linked, the error of the link is the cause.

    >>> error = antiphon.AnswerOverdue("no news of the answer for 30 s", request=trip.id)
    >>> error.reason, error.request == trip.id
    ('ANSWER_OVERDUE', True)
    """

    reason = "ANSWER_OVERDUE"
    next_step = (
        "The request stays in the log, and is answered once its host is there: `antiphon log -f`,"
        " or the same call with its `key`, shows the answer; `antiphon cancel`, or"
        " `cancel(request)`, ends it."
    )

    def __init__(
        self, detail: str = "", *, request: EntryId | None = None, **recovery: Any
    ) -> None:
        """Name the request that has no answer."""
        super().__init__(detail, **recovery)
        self.request = request


class AnswerNotBegun(AnswerOverdue):
    """No host is known to have begun the answer by the time set for it."""

    next_step = (
        "Its host refuses it from now on: send it again. If it has begun unseen, `antiphon log -f`"
        " shows it."
    )


class HostGone(AnswerOverdue):
    """No answer comes: its host was removed, or is away while the request is cancelled."""

    next_step = (
        "Ask again: `antiphon send TEXT`, or the same call under another `key`. Another host"
        " answers once it has the role: `antiphon invite NAME --role host`, or"
        ' `grant(key, "host")`.'
    )


def not_cancelled(error: HostGone) -> HostGone:
    """Return the error of a request that holds up its branch, with the end of that as next step."""
    first = "Call `cancel(error.request)`, or `antiphon cancel`, first."
    return with_step(error, f"{first} {HostGone.next_step}")


def hindered(error: AnswerOverdue, reason: str) -> AnswerOverdue:
    """Return an error without news with the reason that its host names for it."""
    told = AnswerOverdue(
        f"{error.detail}; its host can't go on with it [{reason}]", request=error.request
    )
    return with_step(told, f"Ask the operator of its host to mend that. {AnswerOverdue.next_step}")


def overdue(
    hub: HubStatus, request: EntryId, silent_s: float, calls: Sequence[OpenCall] = ()
) -> AnswerOverdue:
    """Return the error of an answer without news, with that of the hub where it is not linked.

    `calls` are those whose results the request waits for.
    """
    detail = f"no news of the answer for {round(silent_s, 1):g} s"
    if hub.is_linked:
        return _waits_for_calls(detail, request, calls) or AnswerOverdue(detail, request=request)
    cause = hub.last_error or HubUnreachable("no link to a hub was made")
    error = AnswerOverdue(f"{detail}; {_not_linked(hub, cause)}", request=request)
    error.__cause__ = cause
    # First the hub is to be there.
    return with_step(error, f"{cause.next_step} {AnswerOverdue.next_step}")


def _waits_for_calls(
    detail: str, request: EntryId, calls: Sequence[OpenCall]
) -> AnswerOverdue | None:
    if not calls:
        return None
    named = ", ".join(f"{one.call.call_id} ({one.call.name})" for one in calls)
    error = AnswerOverdue(f"{detail}: it waits for the result of {named}", request=request)
    call = calls[0].call.call_id
    return with_step(
        error,
        "The request stays in the log, and is answered behind the result:"
        f" `antiphon send TEXT --result {call}`, or `finish`, gives it;"
        f" `antiphon cancel --call {call}`, or `abandon`, goes on without it.",
    )


def _not_linked(hub: HubStatus, cause: AntiphonError) -> str:
    if not hub.is_configured:
        return "this replica has no hub"
    if means_away(cause):
        return f"the hub is away [{cause.reason}]"
    return f"the hub is not linked: {cause.detail} [{cause.reason}]"
