"""Tool calls open obligations, results close them."""

from model_host.obligations import open_calls_after
from replica.log.body import FinishReason, Generation, Message, Speaker, ToolCall, ToolResult


def test_a_call_stays_open_until_its_result():
    called = Generation((1,), (ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}")), 0,
                        FinishReason.TOOL_CALLS)  # fmt: skip
    result = Message(Speaker.TOOL, (ToolResult("a", ()),))
    open_calls = open_calls_after((), called)
    assert open_calls == ("a", "b")
    assert open_calls_after(open_calls, result) == ("b",)


def test_other_entries_change_no_obligation():
    assert open_calls_after(("a",), None) == ("a",)
