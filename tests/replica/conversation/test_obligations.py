"""Tool calls open obligations; their executor closes them."""

import pytest

from replica.conversation.obligations import Asked, Ledger
from replica.ids import PublicKey
from replica.log.body import (
    Body,
    FinishReason,
    Generation,
    Message,
    Part,
    Request,
    Sampling,
    Speaker,
    Text,
    ToolCall,
    ToolResult,
)

REQUESTER, EXECUTOR, OWNER, OTHER, HOST = (PublicKey(bytes([n]) * 32) for n in range(5))
ASKED = Asked(REQUESTER, EXECUTOR)
CALL = ToolCall("1", "f", "{}")


def result(*, is_error: bool = False) -> Message:
    return Message(Speaker.TOOL, (ToolResult("1", (), is_error),))


def called(*parts: Part) -> Generation:
    return Generation((1,), parts, 0, FinishReason.TOOL_CALLS)


def after(ledger: Ledger, author: PublicKey, body: Body | None) -> tuple[Ledger, frozenset[int]]:
    return ledger.after(author, body, answered=ASKED, owners={OWNER})


def test_an_answers_calls_are_open_until_their_results():
    ledger, _ = after(Ledger(), HOST, called(Text("a"), CALL, ToolCall("2", "f", "{}")))
    assert ledger.open_calls == ("1", "2")
    ledger, foreign = after(ledger, EXECUTOR, result())
    assert ledger.open_calls == ("2",)
    assert not foreign


@pytest.mark.parametrize("author", [REQUESTER, OWNER, OTHER])
def test_a_result_of_another_key_closes_nothing(author: PublicKey):
    ledger, _ = after(Ledger(), HOST, called(CALL))
    ledger, foreign = after(ledger, author, result())
    assert ledger.open_calls == ("1",)
    assert foreign == {0}


@pytest.mark.parametrize("author", [REQUESTER, OWNER])
def test_the_requester_and_owners_may_abandon_a_call(author: PublicKey):
    ledger, _ = after(Ledger(), HOST, called(CALL))
    ledger, foreign = after(ledger, author, result(is_error=True))
    assert ledger.open_calls == ()
    assert not foreign


def test_another_member_may_not_abandon_a_call():
    ledger, _ = after(Ledger(), HOST, called(CALL))
    ledger, foreign = after(ledger, OTHER, result(is_error=True))
    assert (ledger.open_calls, foreign) == (("1",), {0})


def test_a_call_in_a_message_is_open_where_the_executor_of_the_request_before_wrote_it():
    message = Message(Speaker.ASSISTANT, (CALL,))
    asked, _ = after(Ledger(), REQUESTER, Request(HOST, Sampling(), executor=EXECUTOR))
    assert after(asked, EXECUTOR, message)[0].open_calls == ("1",)
    assert after(asked, REQUESTER, message)[0].open_calls == ()
    # Words brought from elsewhere have nobody who runs their calls.
    assert after(Ledger(), EXECUTOR, message)[0].open_calls == ()


def test_the_author_of_a_request_runs_its_tools_unless_it_names_another_key():
    ledger, _ = after(Ledger(), REQUESTER, Request(HOST, Sampling()))
    assert ledger.asked == Asked(REQUESTER, REQUESTER)


def test_a_result_without_a_call_is_a_text_like_others():
    ledger, foreign = after(Ledger(), OTHER, result())
    assert (ledger, foreign) == (Ledger(), frozenset())


def test_other_entries_change_no_obligation():
    ledger, _ = after(Ledger(), HOST, called(CALL))
    for body in (None, Message(Speaker.USER, (Text("hi"),))):
        assert after(ledger, OTHER, body) == (ledger, frozenset())
