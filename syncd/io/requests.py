"""Ids in requests, with their width checked; messages decoded in steps."""

import asyncio
from typing import TypeVar

from replica.ids import ID_BYTES, ConversationId
from replica.link import Steps
from replica.refusals import ArgumentInvalid

_Result = TypeVar("_Result")


def conversation_id(value: bytes) -> ConversationId:
    """Return a conversation's id from its bytes. Raises ArgumentInvalid."""
    if len(value) != ID_BYTES:
        raise ArgumentInvalid("conversation: 32 bytes")
    return ConversationId(value)


async def in_steps(steps: Steps[_Result]) -> _Result:
    """Run work in steps and let other tasks run in between (LINK-92); return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: _Result = done.value
            return result
        await asyncio.sleep(0)
