"""Ctrl-C in a chat that reads lines: a cancel that fails is reported at once."""

import asyncio
import os
import signal
import threading

import pytest

from antiphon.cli.chat_session import ChatSession
from antiphon.cli.output import Output
from replica.errors import AntiphonError
from replica.ids import EntryId
from replica.refusals import StoreFull
from tests.antiphon.cli.conftest import Terminal, World
from tests.support.callers import PATIENCE_S


def test_a_cancel_that_fails_is_reported_before_the_answer_ends(
    world: World, me: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, fail = threading.Event(), Output.fail

    async def refuse(_chat: ChatSession, _request: EntryId) -> None:
        raise StoreFull

    def note(out: Output, error: AntiphonError) -> None:
        fail(out, error)
        said.set()

    async def interrupt(index: int) -> None:
        if index == 1:
            os.kill(os.getpid(), signal.SIGINT)
            assert await asyncio.to_thread(said.wait, PATIENCE_S)

    monkeypatch.setattr(ChatSession, "cancel", refuse)
    monkeypatch.setattr(Output, "fail", note)
    me.ok("new")
    world.stop_host()
    world.start_host(pace=interrupt)
    result = me.run("chat", typed="hello\n")
    assert "STORE_FULL" in result.stderr
    assert (result.stdout, result.exit_code) == ("You said: hello\n", 0)


@pytest.mark.parametrize("typed", ["/nosuch\n", "/nosuch\nhello\n/quit\n"])
def test_a_line_that_is_no_command_fails_and_the_chat_goes_on(me: Terminal, typed: str) -> None:
    """It was told in a note, and the exit code was 0."""
    me.ok("new")
    result = me.run("chat", typed=typed)
    assert result.exit_code == 1
    assert "error: there is no /nosuch\n" in result.stderr
    assert "reason  USAGE_INVALID" in result.stderr
    assert result.stdout == ("You said: hello\n" if "hello" in typed else "")
