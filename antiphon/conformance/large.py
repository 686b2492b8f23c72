"""Questions that are too large for a vector file. Pure."""

from collections.abc import Iterator

from antiphon.conformance.questions import Case

BODY_BYTES = 512 * 1024
"""What a body holds at most (spec/02-entry §1)."""


def large_cases() -> Iterator[Case]:
    """Yield entries with bodies at their bound, and headers at which a later step fails."""
    malformed, large = b"\xff", bytes(8_193)
    for name, header, size, reason in (
        ("body-size-header-malformed", malformed, BODY_BYTES + 1, "BODY_TOO_LARGE"),
        ("body-size-header-large", large, BODY_BYTES + 1, "BODY_TOO_LARGE"),
        ("body-full-header-malformed", malformed, BODY_BYTES, "WIRE_MALFORMED"),
    ):
        entry = {"header": header.hex(), "signature": bytes(64).hex(), "body": bytes(size).hex()}
        question = {"ask": "admit", "conversation": bytes(32).hex(), "given": [], "entry": entry}
        expected = {"verdict": "refused", "reason": reason}
        yield Case(f"admission/{name}", ("ENT-2", "ENT-10"), question, expected)
