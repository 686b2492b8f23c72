"""Bodies: the ids they list, and the text people read."""

import pytest

from replica.ids import Digest, EntryId, PublicKey
from replica.log.body import (
    CONTINUABLE,
    Cancel,
    Cut,
    FinishReason,
    Grant,
    Member,
    Opaque,
    Revocation,
    Role,
    Seal,
    Text,
    ToolCall,
    ToolResult,
    listed_ids,
    text_of,
)
from tests.support.writers import said

A, B, C, D = (EntryId(bytes([n]) * 32) for n in range(4))
KEY, NOTHING = PublicKey(bytes(32)), Digest(bytes(32))


def seal(prev: EntryId | None) -> Seal:
    return Seal(A, prev, (B, A), NOTHING, NOTHING, NOTHING, (1, 1), (D,))


def test_a_seal_lists_its_request_the_seal_before_its_entries_and_the_membership() -> None:
    assert listed_ids(seal(C)) == (A, C, B, A, D)
    assert listed_ids(seal(None)) == (A, B, A, D)


def test_a_revocation_lists_its_cuts() -> None:
    body = Member(Revocation(KEY, (Cut(1, 1, 5, B), Cut(2, 2, 0, C))))
    assert listed_ids(body) == (B, C)


@pytest.mark.parametrize("body", [None, said("x"), Cancel(), Member(Grant(KEY, Role.WRITER))])
def test_no_other_body_lists_entries(body) -> None:
    assert listed_ids(body) == ()


def test_the_text_of_parts_is_what_people_read_of_each() -> None:
    parts = (
        Text("a"),
        ToolCall("1", "search", "{}"),
        ToolResult("1", (Text("b"), ToolResult("2", (Text("c"),)))),
        Opaque("someone", fallback_text="d", data=b"secret"),
    )
    assert text_of(parts) == "abcd"
    assert text_of(()) == ""


def test_an_answer_that_stopped_by_itself_or_was_refused_is_not_continued() -> None:
    ended = {FinishReason.STOP, FinishReason.REFUSED, FinishReason.TOOL_CALLS}
    assert not ended & CONTINUABLE
    assert FinishReason.CONTEXT_LIMIT not in CONTINUABLE, "there is no room to go on in"
