"""An open call of a tool at the command line: whose it is, and how an owner ends it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from replica.log import ToolCall
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.test_chat_terminal import members
from tests.support.scripted_host import Asked, Token, echo

__all__ = ["members"]


def calling(asked: Asked) -> Sequence[Token | ToolCall]:
    """Call a tool where that is asked for."""
    return [ToolCall("a", "book", "{}")] if asked.said == "Book it." else echo(asked)


def book(world: World, caller: Terminal, tmp_path: Path) -> None:
    """Let a member's question call a tool, whose result does not come."""
    world.stop_host()
    world.start_host(calling)
    (tmp_path / "tools.json").write_text('[{"name": "book"}]')
    caller.ok("send", "Book it.", "--tools", str(tmp_path / "tools.json"))


def test_an_owner_abandons_the_call_of_a_member_who_is_gone(
    world: World, members: tuple[Terminal, Terminal], tmp_path: Path
) -> None:
    """It was told to ask an owner, and no command ended the call."""
    ada, bob = members
    book(world, bob, tmp_path)
    ada.ok("status")
    noted = ada.run("send", "hello", "--no-wait").stderr
    assert "note: the tool call a (book) of" in noted
    assert "`antiphon cancel --call a` goes on without it" in noted
    shown = ada.run("send", "booked", "--result", "a")
    assert shown.exit_code == 1
    assert "reason  ROLE_FORBIDS" in shown.stderr
    assert "next    `antiphon cancel --call a` goes on without a result." in shown.stderr
    done = ada.run("cancel", "--call", "a")
    assert done.exit_code == 0
    assert "call a is abandoned; the branch goes on without its result" in done.stderr
    assert ada.refused("cancel", "--call", "a") == "ARGUMENT_INVALID"
    ada.ok("send", "last")
    assert "You said: last" in ada.ok("log")


def test_a_question_behind_an_open_call_says_what_it_waits_for(
    world: World, me: Terminal, tmp_path: Path
) -> None:
    """It said that its host was awaited, which was there."""
    me.ok("new")
    book(world, me, tmp_path)
    shown = me.run("send", "hello", "--timeout", "0.2")
    assert shown.exit_code == 1
    assert "it waits for the result of a (book)" in shown.stderr
    assert "`antiphon send TEXT --result a`" in shown.stderr


def test_a_writer_abandons_no_call_of_another_member(
    world: World, members: tuple[Terminal, Terminal], tmp_path: Path
) -> None:
    ada, bob = members
    book(world, ada, tmp_path)
    bob.ok("status")
    noted = bob.run("send", "hello", "--no-wait").stderr
    assert "note: the tool call a (book) of" in noted
    assert "cancel --call" not in noted
    for command in (("send", "booked", "--result", "a"), ("cancel", "--call", "a")):
        refused = bob.run(*command)
        assert refused.exit_code == 1
        assert "ROLE_FORBIDS" in refused.stderr
        assert "cancel --call" not in refused.stderr
    assert ada.records("cancel", "--call", "a")[-1]["abandoned"] == "a"


def test_a_branch_between_a_call_and_its_result_is_refused(
    world: World, me: Terminal, tmp_path: Path
) -> None:
    me.ok("new")
    book(world, me, tmp_path)
    answer = next(e["id"] for e in me.records("log", "--all") if e["kind"] == "generation")
    me.ok("send", "booked", "--result", "a")
    shown = me.run("send", "--at", answer, "again")
    assert shown.exit_code == 1
    assert "has no result of the tool call a (book)" in shown.stderr
    assert "again" not in me.ok("log", "--all")


@pytest.mark.parametrize("is_chat", [False, True])
def test_cancel_names_the_tool_that_the_next_message_still_waits_for(
    world: World, me: Terminal, tmp_path: Path, is_chat: bool
) -> None:
    """It said that the next message does not wait, and then that nothing is awaited."""
    me.ok("new")
    book(world, me, tmp_path)

    def cancel() -> str:
        done = me.run("chat", typed="/cancel\n") if is_chat else me.run("cancel")
        return " ".join(done.output.split())

    noted = me.run("send", "hello", "--no-wait").stderr
    assert "`antiphon cancel --call a` goes on without it" in noted
    done = cancel()
    assert "1 request cancelled; the next message waits for a tool, not for an answer" in done
    assert "the tool call a (book) of your key has no result; the next message waits" in done
    assert "`antiphon cancel --call a` goes on without it" in done
    again = cancel()
    assert "on this branch, but the result of the tool call a (book)" in again
    assert "`antiphon cancel --call a` goes on without it" in again
    me.ok("send", "hello", "--no-wait")
    assert me.records("cancel")[-1]["calls"] == ["a"]
    me.ok("cancel", "--call", "a")
    me.ok("send", "last")
    assert "You said: last" in me.ok("log")
