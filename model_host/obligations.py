"""The tool calls of a context that still lack a result (spec/07-host §4, HOST-13). Pure."""

from replica.log import Body, Generation, Message, ToolCall, ToolResult

OpenCalls = tuple[str, ...]
"""Ids of calls without a result, in the order of their opening."""


def open_calls_after(before: OpenCalls, body: Body | None) -> OpenCalls:
    """Return the open calls of a context with one more entry."""
    if not isinstance(body, (Message, Generation)):
        return before
    calls = dict.fromkeys(before)
    for part in body.parts:
        if isinstance(part, ToolCall):
            calls[part.call_id] = None
        elif isinstance(part, ToolResult):
            calls.pop(part.call_id, None)
    return tuple(calls)
