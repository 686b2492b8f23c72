"""A call that brings many messages is not waited for longer than a silent link."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from replica import limits
from replica.io.serving.next_message import next_message
from replica.refusals import LinkIdle


async def silent() -> AsyncGenerator[bytes, None]:
    await asyncio.Event().wait()
    yield b""


async def spoken() -> AsyncGenerator[bytes, None]:
    yield b"one"


async def test_silence_ends_the_wait_with_what_it_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDLE_TIMEOUT_S", 0.01)
    with pytest.raises(LinkIdle, match="nothing is kept"):
        await next_message(silent(), "nothing is kept")
    with pytest.raises(LinkIdle, match="No frame came"):
        await next_message(silent())


async def test_what_comes_is_returned_and_none_at_the_end() -> None:
    messages = spoken()
    assert await next_message(messages) == b"one"
    assert await next_message(messages) is None
