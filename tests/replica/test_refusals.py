"""Refusals: one reason each, in words that agree with the limits (spec/10-errors)."""

import inspect

import pytest

from replica import limits, refusals
from replica.errors import AntiphonError, EntryRefused, RequestRefused, StoreError, Unavailable
from replica.ids import SALT_BYTES, Digest
from replica.log import CallKey, Message, Speaker, Text
from replica.log.codec.entries import encode_body

CLASSES = [
    kind
    for _, kind in inspect.getmembers(refusals, inspect.isclass)
    if kind.__module__ == refusals.__name__
]


def test_no_two_refusals_share_a_reason() -> None:
    reasons = [kind.reason for kind in CLASSES]
    assert len(set(reasons)) == len(reasons)


@pytest.mark.parametrize("kind", CLASSES)
def test_a_refusal_has_a_branch_a_reason_and_a_next_step_of_its_own(
    kind: type[AntiphonError],
) -> None:
    branches = (EntryRefused, RequestRefused, Unavailable, StoreError)
    (branch,) = [b for b in branches if issubclass(kind, b)]
    assert kind.reason != branch.reason
    assert kind.next_step != branch.next_step
    assert kind().detail == (kind.__doc__ or "").split("\n")[0]


def test_no_entry_that_breaks_a_rule_is_worth_sending_again() -> None:
    assert not [kind for kind in CLASSES if issubclass(kind, EntryRefused) and kind.retryable]


@pytest.mark.parametrize(
    ("kind", "bound", "unit"),
    [
        (refusals.HeaderTooLarge, limits.HEADER_BYTES_MAX // 1024, "KiB"),
        (refusals.BodyTooLarge, limits.BODY_BYTES_MAX // 1024, "KiB"),
        (refusals.FrameTooLarge, limits.FRAME_BYTES_MAX // 1024**2, "MiB"),
    ],
)
def test_a_refusal_for_size_names_the_limit(
    kind: type[AntiphonError], bound: int, unit: str
) -> None:
    assert f"than {bound} {unit}." in kind().detail


def test_as_much_text_fits_an_entry_as_the_refusal_names() -> None:
    assert "511 KiB of text" in refusals.BodyTooLarge().next_step
    key = CallKey(Digest(bytes(32)), Digest(bytes(32)), 2**32 - 1)
    parts, label = (Text("x" * 511 * 1024),), "x" * limits.LABEL_BYTES_MAX
    body = encode_body(Message(Speaker.USER, parts, key, label=label))
    assert SALT_BYTES + len(body) <= limits.BODY_BYTES_MAX


def test_a_stranger_and_an_absent_conversation_get_one_answer() -> None:
    assert "not a member" in refusals.ConversationUnknown().detail
    assert "no such conversation" in refusals.ConversationUnknown().detail
