"""The next message of a call that brings many (spec/11-limits, IDLE_TIMEOUT_S)."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from replica import limits
from replica.refusals import LinkIdle

_Message = TypeVar("_Message")


async def next_message(messages: AsyncIterator[_Message], silence: str = "") -> _Message | None:
    """Return the next message, None at the end.

    Raises LinkIdle if none comes for too long; `silence` says what that means here.
    """
    try:
        async with asyncio.timeout(limits.IDLE_TIMEOUT_S):
            return await anext(messages, None)
    except TimeoutError as error:
        raise LinkIdle(silence) from error
