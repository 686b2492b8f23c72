"""Ctrl-C in a chat that reads lines: a cancel that fails is reported at once."""

import asyncio
import json
import os
import signal
import threading
from typing import Any

import pytest

from antiphon.cli.chat.chat_session import ChatSession
from antiphon.cli.views.output import Output
from replica.errors import AntiphonError
from replica.ids import EntryId
from replica.refusals import StoreFull
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.processes import first_line, forked_antiphon
from tests.antiphon.cli.test_terminal import variables_of
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


def chatted(me: Terminal, typed: str) -> list[dict[str, Any]]:
    """Return what a chat with --json writes to stdout: JSON objects, and nothing else."""
    return [json.loads(line) for line in me.ok("chat", "--json", typed=typed).splitlines()]


def without_times(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for one in (one for record in records for one in record.get("conversations", ())):
        del one["last_ack_ms"]
    return records


def test_with_json_a_command_of_a_chat_writes_the_records_of_the_command_line(
    me: Terminal,
) -> None:
    """It wrote a table, or nothing at all."""
    me.ok("new")
    first = me.record("send", "one")
    me.ok("send", "two")
    me.ok("title", "A plan")
    me.ok("branches", "--name", "main")
    digits = first["generation"][:12]
    for typed, command in {
        "/branches": ["branches"],
        "/branches other": ["branches"],
        "/log": ["log"],
        "/status": ["status"],
        "/title": ["title"],
        "/title Another": ["title"],
        f"/fork {digits}": ["fork", "--at", digits],
        "/switch main": ["switch", "main"],
    }.items():
        shown = chatted(me, f"{typed}\n")
        assert shown, typed
        assert without_times(shown) == without_times(me.records(*command)), typed


def test_with_json_a_command_of_a_chat_that_the_command_line_lacks_writes_what_it_did(
    world: World, me: Terminal
) -> None:
    conversation = me.record("new")["conversation"]
    said = me.record("send", "one")["message"]
    (again,) = chatted(me, "/again\n")
    assert again["text"] == "You said: one"
    assert chatted(me, "/name ada\n/help\n") == [{"conversation": conversation, "name": "ada"}]
    assert chatted(me, "/undo\n") == [{"conversation": conversation, "undone": said}]
    world.stop_host()
    me.ok("send", "two", "--no-wait")
    (cancelled,) = chatted(me, "/cancel\n")
    assert len(cancelled.pop("cancelled")) == 1
    rest = {"abandoned": None, "awaited": [], "calls": []}
    assert cancelled == {"conversation": conversation} | rest


def test_a_line_behind_a_deletion_by_another_command_is_refused_as_deleted(
    world: World, me: Terminal
) -> None:
    me.ok("new")
    with forked_antiphon(["chat"], variables_of(world, me)) as chat:
        print("hello", file=chat.stdin, flush=True)
        assert first_line(chat.stdout) == "You said: hello\n"
        me.ok("delete", "--yes")
        _, said = chat.communicate("and more\n")
        assert chat.wait() == 1
    assert "reason  CONVERSATION_DELETED" in said
