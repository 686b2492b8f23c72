"""The form of a client's answers (spec/conform-client.md). Pure."""

import re
from collections.abc import Callable

from antiphon.conformance.cases import Violation
from antiphon.conformance.suites.recording import Json

_Form = tuple[str, Callable[[object], bool]]


def _is_id(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _is_data(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("([0-9a-f]{2})*", value) is not None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text_or_null(value: object) -> bool:
    return value is None or isinstance(value, str)


_ID: _Form = ("64 hex digits", _is_id)
_FLAG: _Form = ("true or false", lambda value: isinstance(value, bool))
_REASON: _Form = ("a reason or null", _is_text_or_null)
_FIELDS: dict[str, dict[str, _Form]] = {
    "begin": {"conversation": _ID},
    "append": {"id": _ID},
    "ask": {"id": _ID},
    "edit": {"id": _ID},
    "read": {"data": ("pairs of hex digits", _is_data)},
    "status": {
        "linked": _FLAG,
        "synchronized": _FLAG,
        "error": _REASON,
        "digest": ("64 hex digits or null", lambda value: value is None or _is_id(value)),
        "unacked": ("a number", _is_count),
        "drafted": ("a text", lambda value: isinstance(value, str)),
        "answer": ("a text or null", _is_text_or_null),
    },
}


def checked(do: str, answer: Json) -> Json:
    """Return the answer to a command; one that failed has `error`, and status always has it.

    Raises Violation for an answer that lacks a field, or has it in another form.
    """
    if do != "status":
        wanted, is_right = _REASON
        if not is_right(answer.get("error")):
            raise Violation(f"{do}: error is {_shown(answer['error'])}, must be {wanted}")
        if answer.get("error") is not None:
            return answer
        answer = {name: value for name, value in answer.items() if name != "error"}
    for name, (wanted, is_right) in _FIELDS.get(do, {}).items():
        if name not in answer:
            raise Violation(f"{do}: the answer has no {name}, must be {wanted}")
        if not is_right(answer[name]):
            raise Violation(f"{do}: {name} is {_shown(answer[name])}, must be {wanted}")
    return answer


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
