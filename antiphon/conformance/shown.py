"""Values of answers: whether two are the same, and the words where they differ. Pure."""

import json

SHOWN_MAX = 300
"""Characters of a value in a problem."""
_BEFORE = 100
"""Those of them before the first difference."""


def is_same(found: object, wanted: object) -> bool:
    """Compare two JSON values; true is no number, and a number has one value in any notation."""
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(is_same(found[k], wanted[k]) for k in wanted)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(is_same, found, wanted))
    return found == wanted


def as_json(value: object) -> str:
    """Return a JSON value as text."""
    try:
        return json.dumps(value)
    except RecursionError:
        return "a value that is nested too deeply"


def contrast(name: str, found: str, wanted: str) -> str:
    """Return which value is found and which must be, of long ones the part that differs."""
    if max(len(found), len(wanted)) <= SHOWN_MAX:
        return f"{name} is {found}, must be {wanted}"
    at = next((i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), None)
    at = min(len(found), len(wanted)) if at is None else at
    start = max(0, at - _BEFORE)
    parts = f"{_part(found, start)}, must be {_part(wanted, start)}"
    return f"{name} is {parts} (they differ from character {at + 1} on)"


def _part(text: str, start: int) -> str:
    end = start + SHOWN_MAX
    return f"{'…' * bool(start)}{text[start:end]}{'…' * (end < len(text))}"
