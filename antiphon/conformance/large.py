"""Questions that are too large for a vector file. Pure."""

from collections.abc import Iterator

from antiphon.conformance.questions import Case
from antiphon.conformance.writers import Writer
from replica.ids import ConversationId, Digest
from replica.log import Entry, Seal

BODY_BYTES = 512 * 1024
"""What a body holds at most (spec/02-entry §1)."""
SEALED = 8_192
"""Entries that a seal lists at most (spec/02-entry §5)."""


def large_cases() -> Iterator[Case]:
    """Yield entries with bodies at their bounds, and headers at which a later step fails."""
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
    yield _seal("seal-full", SEALED, {"verdict": "admitted"})
    yield _seal("seal-beyond", SEALED + 1, {"verdict": "refused", "reason": "BODY_MALFORMED"})


def _seal(name: str, count: int, expected: dict[str, str]) -> Case:
    """Return a seal of so many entries. The numbers of its tokens are packed: one field."""
    author = Writer(8)
    genesis = author.genesis()
    body = Seal(
        request=genesis.id,
        prev_seal=None,
        entries=(genesis.id,) * count,
        profile=Digest(bytes(32)),
        context_digest=Digest(bytes(32)),
        render_digest=Digest(bytes(32)),
        tokens_per_entry=(300,) * count,
        membership_heads=(),
    )
    seal = author.write(ConversationId(genesis.id), body, parents=[genesis], listed=[genesis])
    question = {
        "ask": "admit",
        "conversation": genesis.id.hex(),
        "given": [_shown(genesis)],
        "entry": _shown(seal),
    }
    return Case(f"admission/{name}", ("ENT-7", "ENT-10", "LIM-1"), question, expected)


def _shown(entry: Entry) -> dict[str, str]:
    assert entry.body is not None, "it was written here"
    return {
        "header": entry.header_bytes.hex(),
        "signature": entry.signature.hex(),
        "body": entry.body.hex(),
    }
