"""Questions that are too large for a vector file. Pure."""

from collections.abc import Iterator

from antiphon.conformance.questions import Case

BODY_BYTES = 512 * 1024
"""What a body holds at most (spec/02-entry §1)."""


def large_cases() -> Iterator[Case]:
    """Yield entries that break two steps of admission, the first of them by their body's size."""
    body = bytes(BODY_BYTES + 1).hex()
    for name, header in (("malformed", b"\xff"), ("large", bytes(8_193))):
        entry = {"header": header.hex(), "signature": bytes(64).hex(), "body": body}
        question = {"ask": "admit", "conversation": bytes(32).hex(), "given": [], "entry": entry}
        expected = {"verdict": "refused", "reason": "BODY_TOO_LARGE"}
        yield Case(f"admission/body-size-header-{name}", ("ENT-2", "ENT-10"), question, expected)
