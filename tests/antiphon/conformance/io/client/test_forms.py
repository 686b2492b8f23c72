"""Answers of clients that have another form than the commands say."""

import pytest

from antiphon.conformance.cases import Violation
from antiphon.conformance.io.client import CASES, Clients
from antiphon.conformance.io.client.forms import checked
from antiphon.conformance.io.running import outcome_of
from antiphon.conformance.suites.recording import Json

ID = 32 * "ab"
STATUS = {
    "linked": True, "synchronized": False, "error": None, "digest": None, "unacked": 0,
    "drafted": "", "answer": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("do", "answer", "problem"),
    [
        ("append", {}, "append: the answer has no id, must be 64 hex digits"),
        ("append", {"id": ID.upper()}, f"append: id is '{ID.upper()}', must be 64 hex digits"),
        ("begin", {"id": ID}, "begin: the answer has no conversation, must be 64 hex digits"),
        ("read", {"data": "abc"}, "read: data is 'abc', must be pairs of hex digits"),
        ("connect", {"error": 5}, "connect: error is 5, must be a reason or null"),
        ("status", {}, "status: the answer has no linked, must be true or false"),
        ("status", {**STATUS, "unacked": "0"}, "status: unacked is '0', must be a number"),
        ("status", {**STATUS, "unacked": True}, "status: unacked is True, must be a number"),
        ("status", {**STATUS, "digest": ""}, "status: digest is '', must be 64 hex digits or null"),
    ],
)
def test_an_answer_of_another_form_is_named(do: str, answer: Json, problem: str) -> None:
    with pytest.raises(Violation) as raised:
        checked(do, answer)
    assert str(raised.value) == problem


def test_a_right_answer_is_returned_without_an_error_that_is_none() -> None:
    assert checked("append", {"id": ID, "error": None, "more": 1}) == {"id": ID, "more": 1}
    assert checked("append", {"error": "NO_HOST"}) == {"error": "NO_HOST"}
    assert checked("follow", {}) == {}
    assert checked("status", STATUS) == STATUS


class _Mute:
    async def answer(self, _command: Json) -> Json:
        return {}


async def test_a_case_names_the_field_that_an_answer_lacks() -> None:
    (case,) = [one for one in CASES if one.name == "entries/append"]
    outcome = await outcome_of(case, Clients(_Mute()))
    assert outcome.problems == ("status: the answer has no linked, must be true or false",)
