"""A chat at a terminal: others' words, the hub away, a killed host, pastes, branches."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.pty_terminal import CTRL_C, CTRL_D, CTRL_Z, PtyTerminal, ShellTerminal
from tests.antiphon.cli.test_terminal import HeldUp, at, variables_of
from tests.antiphon.cli.test_two_members import pair


@pytest.fixture
def members(world: World) -> tuple[Terminal, Terminal]:
    """Ada, who owns a conversation, and Bob, who writes in it; Ada knows Bob by his name."""
    ada, bob = pair(world)
    ada.ok("members", "name", bob.record("key", "show")["key"], "bob")
    return ada, bob


@pytest.fixture
def slow(world: World, members: tuple[Terminal, Terminal]) -> Iterator[HeldUp]:
    """A host that stops before its third token until it is released."""
    host = HeldUp(world)
    yield host
    host.evict()


def chat(world: World, me: Terminal, *arguments: str) -> PtyTerminal:
    """Start a chat; it has shown its prompt."""
    terminal = at(world, me, "chat", *arguments)
    terminal.expect_screen("/help\n")
    return terminal


@contextmanager
def answering(world: World, me: Terminal) -> Iterator[PtyTerminal]:
    """Start a chat, and ask; a slow host's answer has begun."""
    with chat(world, me) as terminal:
        terminal.type("one two three\r")
        terminal.expect_screen("2 tokens")
        yield terminal


def test_other_members_words_and_answers_appear_as_they_come_with_names(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, bob = members
    with chat(world, ada) as terminal:
        bob.ok("send", "one two three", "--no-wait")
        terminal.expect_screen("bob: one two three\nYou said:\nanswering bob · 2 tokens")
        terminal.type("and mine\r")
        terminal.expect_screen("next  you: and mine")
        slow.evict()
        terminal.expect_screen("You said: one two three\n5 tokens")
        terminal.expect_screen("> and mine\nYou said: and mine")
        assert terminal.leave(CTRL_D) == 0
    assert len(bob.record("status")["conversations"]) == 1


def test_in_a_low_terminal_the_panel_leaves_the_line_of_text_above_it(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, _ = members
    with at(world, ada, "chat", rows=6) as terminal:
        terminal.expect_screen("/help\n")
        terminal.type("one two three\r")
        terminal.expect_screen("2 tokens")
        for words in ("first", "second", "third", "fourth"):
            terminal.type(f"{words}\r")
            terminal.expect_screen(words if words in ("first", "second", "third") else "and 2 more")
        assert terminal.screen.lines[-5:] == [
            "answering you · 2 tokens", "next  you: first", "next  you: second",
            "      and 2 more", ">",
        ]  # fmt: skip
        slow.evict()
        terminal.expect_screen("You said: one two three\n5 tokens")
        terminal.expect_screen("> fourth\nYou said: fourth")
        assert terminal.leave(CTRL_D) == 0


def test_another_members_branch_is_announced_with_the_way_there(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    ada, bob = members
    first = ada.record("send", "first")
    bob.ok("status")
    with chat(world, ada) as terminal:
        bob.ok("send", "aside", "--at", first["message"])
        terminal.expect_screen("another branch, by bob: aside · /switch ")
        (digits,) = re.findall(r"/switch ([0-9a-f]+)", terminal.screen.text)
        terminal.type("stay here\r")
        terminal.expect_screen("You said: stay here")
        assert "You said: aside" not in terminal.screen.text
        terminal.type(f"/switch {digits}\r")
        terminal.expect_screen("You said: aside")
        terminal.type("there\r")
        terminal.expect_screen("You said: there")
        assert terminal.leave(CTRL_D) == 0
    assert [line[20:] for line in ada.ok("log").splitlines()] == [
        "first", "aside", "You said: aside", "there", "You said: there"
    ]  # fmt: skip


def test_one_goes_on_writing_while_the_hub_is_away_and_nothing_is_lost(
    world: World, me: Terminal
) -> None:
    me.ok("new")
    with chat(world, me) as terminal:
        terminal.type("half a line")
        terminal.expect_screen("> half a line")
        world.stop_hub()
        terminal.expect_screen("offline: the hub is away")
        assert terminal.screen.lines[-1] == "> half a line"
        terminal.type(" more\r")
        terminal.expect_screen("answering you · waiting for the hub; go on writing")
        terminal.type("a second one\r")
        terminal.expect_screen("next  you: a second one")
        terminal.type("a third, not sent")
        world.start_hub()
        terminal.expect_screen("You said: half a line more")
        terminal.expect_screen("You said: a second one\n5 tokens")
        terminal.expect_screen("\n> a third, not sent")
        terminal.type(CTRL_C)
        terminal.expect("not sent: a third, not sent")
        assert terminal.exit_code() == 0


def test_without_a_hub_one_ctrl_c_cancels_and_a_second_leaves(world: World, me: Terminal) -> None:
    me.ok("new")
    with chat(world, me) as terminal:
        world.stop_hub()
        terminal.expect_screen("offline")
        terminal.type("hello\r")
        terminal.expect_screen("waiting for the hub")
        terminal.type(CTRL_C)
        terminal.expect_screen("cancelling; Ctrl-C again leaves")
        terminal.type(CTRL_C)
        assert terminal.exit_code() == 130
    world.start_hub()
    me.ok("status")
    assert "cancel" in {r["kind"] for r in me.records("log")}


def test_a_ctrl_c_right_behind_a_message_cancels_its_answer(world: World, me: Terminal) -> None:
    """The chat left without a word where both keys came at once."""
    me.ok("new")
    with chat(world, me) as terminal:
        world.stop_hub()
        terminal.expect_screen("offline")
        terminal.type(f"hello\r{CTRL_C}")
        terminal.expect_screen("cancelling; Ctrl-C again leaves")
        assert terminal.leave(CTRL_C) == 130
    world.start_hub()
    me.ok("status")
    assert "cancel" in {r["kind"] for r in me.records("log")}


def test_the_second_ctrl_c_leaves_also_where_another_question_waits(
    world: World, me: Terminal
) -> None:
    """It cancelled that question, and stayed."""
    me.ok("new")
    with chat(world, me) as terminal:
        world.stop_hub()
        terminal.expect_screen("offline")
        terminal.type("hello\r")
        terminal.expect_screen("waiting for the hub")
        terminal.type("and another\r")
        terminal.expect_screen("next  you: and another")
        terminal.type(CTRL_C)
        terminal.expect_screen("cancelling; Ctrl-C again leaves")
        terminal.type(CTRL_C)
        assert terminal.exit_code() == 130
    requests = [r["id"] for r in me.records("log", "--all") if r["kind"] == "request"]
    (cancelled,) = (r["parents"] for r in me.records("log", "--all") if r["kind"] == "cancel")
    assert cancelled == requests[:1]


@pytest.mark.parametrize("by_command", [True, False])
def test_a_cancelled_answer_is_shown_once_whoever_cancels_it(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp, by_command: bool
) -> None:
    ada, bob = members
    with answering(world, ada) as terminal, at(world, bob, "chat") as other:
        other.expect_screen("2 tokens")
        if by_command:
            terminal.type("/cancel\r")
        else:
            ada.ok("cancel")
        for screen in (terminal, other):
            screen.expect_screen("cancelling")
        slow.wait_for_cancel()
        slow.evict()
        for screen in (terminal, other):
            screen.expect_screen("cancelled")
            assert screen.screen.text.count("You said:") == 1
            assert screen.leave(CTRL_D) == 0


def test_a_host_that_is_gone_is_said_within_three_seconds(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, _ = members
    with answering(world, ada) as terminal:
        began = time.monotonic()
        world.stop_host()
        terminal.expect_screen("its host left the hub")
        assert time.monotonic() - began < 3.0
        terminal.type(CTRL_C)
        terminal.expect_screen("cancelling")
        terminal.type(CTRL_C)
        assert terminal.exit_code() == 130


def test_a_paste_of_several_lines_is_one_message(world: World, me: Terminal) -> None:
    me.ok("new")
    with chat(world, me) as terminal:
        terminal.type("\x1b[200~one\rtwo\r\x1b[201~")
        terminal.expect_screen("> one\n  two")
        terminal.type("\r")
        terminal.expect_screen("You said: one\ntwo")
        assert terminal.leave(CTRL_D) == 0
    (said,) = (r["text"] for r in me.records("log") if r["kind"] == "message")
    assert said.strip() == "one\ntwo"


def test_ctrl_z_stops_the_chat_and_fg_goes_on_with_it(world: World, me: Terminal) -> None:
    me.ok("new")
    with ShellTerminal([], variables_of(world, me)) as terminal:
        terminal.expect("sh: ")
        terminal.type(f"{sys.executable} -m antiphon chat\r")
        terminal.expect_screen("/help\n")
        terminal.type("half")
        terminal.expect_screen("> half")
        terminal.type(CTRL_Z)
        terminal.expect("topped")
        terminal.expect("sh: ")
        assert terminal.has_echo
        terminal.type("echo $((40 + 2))\r")
        terminal.expect("42")
        terminal.type("fg\r")
        terminal.expect("half")
        assert not terminal.has_echo
        terminal.type(" way\r")
        terminal.expect_screen("You said: half way")
        terminal.type(CTRL_D)
        terminal.expect("sh: ")
        assert terminal.has_echo
        terminal.type("exit\r")
        assert terminal.exit_code() == 0


def test_ctrl_z_without_a_shell_changes_nothing(world: World, me: Terminal) -> None:
    me.ok("new")
    with chat(world, me) as terminal:
        terminal.type(f"ha{CTRL_Z}lf")
        terminal.expect_screen("> half")
        assert terminal.leave(CTRL_C) == 0


@pytest.mark.parametrize("typed", ['"""/etc/hosts"""', "\x1b[200~/* one\r   two */\x1b[201~"])
def test_what_is_quoted_or_has_several_lines_is_no_command(
    world: World, me: Terminal, typed: str
) -> None:
    me.ok("new")
    with chat(world, me) as terminal:
        terminal.type(f"{typed}\r")
        terminal.expect_screen("You said: /")
        assert terminal.leave(CTRL_D) == 0


def test_who_joins_meanwhile_is_announced_above_the_line_and_has_a_name(
    world: World, me: Terminal
) -> None:
    me.ok("new")
    bob, code = world.replica("bob"), me.record("invite", "bob")["code"]
    with chat(world, me) as terminal:
        terminal.type("half a line")
        terminal.expect_screen("> half a line")
        bob.ok("join", code)
        terminal.expect_screen("bob has joined")
        bob.ok("send", "Hello.", "--no-request")
        terminal.expect_screen("bob: Hello.\n> half a line")
        lines = terminal.screen.lines
        assert [line[:14] for line in lines if "half" in line or "joined" in line] == [
            "bob has joined", "> half a line"
        ]  # fmt: skip
        terminal.type(CTRL_C)
        assert terminal.exit_code() == 0


def test_titles_and_names_are_shared_by_the_document(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    ada, bob = members
    ada.ok("send", "hello")
    with chat(world, ada) as terminal:
        terminal.type("/title A plan\r")
        terminal.expect_screen("A plan")
        terminal.type("/branches main\r")
        terminal.expect_screen("main      1  hello")
        terminal.type("/name ada\r")
        terminal.expect_screen("all members see ada")
        assert terminal.leave(CTRL_D) == 0
    for one in (ada, bob):  # a chat may end before the hub has all of it
        one.ok("status")
    assert bob.ok("title") == "A plan\n"
    (branch,) = bob.records("branches")
    assert branch["names"] == ["main"]
    digits = ada.record("key", "show")["key"][:4]
    assert f"ada~{digits}" in bob.ok("log")
    assert "A plan" in bob.ok("list")


def test_what_is_typed_before_the_prompt_is_not_echoed_and_not_lost(
    world: World, me: Terminal
) -> None:
    me.ok("new")
    with at(world, me, "chat") as terminal:
        terminal.expect("\x1b[?2004h")
        terminal.type("early words\r")
        terminal.expect_screen("You said: early words")
        assert terminal.leave(CTRL_D) == 0
        assert terminal.screen.text.count("early words") == 2


def test_an_answer_that_arrives_with_its_question_has_its_size(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    ada, bob = members
    with chat(world, ada) as terminal:
        with terminal.suspended():
            bob.ok("send", "one two")
        terminal.expect_screen("bob: one two\nYou said: one two\n4 tokens")
        assert terminal.leave(CTRL_D) == 0


def test_a_removed_member_reads_what_is_here(world: World) -> None:
    ada, bob = pair(world)
    ada.ok("send", "Where shall we go?")
    bob.ok("log")
    ada.ok("members", "remove", bob.record("key", "show")["key"])
    before = len(bob.records("log"))
    with at(world, bob, "chat") as terminal:
        terminal.expect_screen("what is here can still be read")
        terminal.expect_screen("You said: Where shall we go?")
        terminal.type("Hello?\r")
        terminal.expect_screen("Join with a new key")
        terminal.expect_screen("> Hello?")  # nothing typed is lost
        terminal.type("\x15/title Mine\r")
        terminal.expect_screen("reason  KEY_REMOVED")
        assert terminal.leave(CTRL_C) == 0
    assert len(bob.records("log")) == before


def test_a_chat_that_is_open_when_its_key_is_removed_writes_nothing_more(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, bob = members
    with answering(world, bob) as terminal:
        for words in ("second", "third"):
            terminal.type(f"{words}\r")
            terminal.expect_screen(f"next  you: {words}")
        ada.ok("members", "remove", bob.record("key", "show")["key"])
        terminal.expect("KEY_REMOVED")
        terminal.expect_screen("> second\n> third\nerror: ")
        terminal.expect_screen("is taken\n>")
        assert terminal.screen.text.count("KEY_REMOVED") == 1
        before = len(bob.records("log"))
        terminal.type("Hello?\r")
        terminal.expect("KEY_REMOVED")
        terminal.expect_screen("\n> Hello?")  # nothing typed is lost
        for command in ("/title Mine", "/name me", "/branches mine", "/cancel", "/again"):
            terminal.type(f"\x15{command}\r")
            terminal.expect("KEY_REMOVED")
        terminal.type("/status\r")
        terminal.expect_screen("refused [KEY_REMOVED] · ")
        terminal.expect_screen(" · 0 not at the hub yet · ")
        assert terminal.leave(CTRL_C) == 0
    assert len(bob.records("log")) == before
    with at(world, bob, "chat") as terminal:
        terminal.expect_screen("what is here can still be read")
        terminal.expect_screen("> second\n> third\n>")
        assert "KEY_REMOVED" not in terminal.screen.text
        assert terminal.leave(CTRL_C) == 0


@pytest.mark.parametrize("how", ["an owner removes it", "it leaves", "it is deleted"])
def test_a_chat_says_at_once_that_nothing_is_taken_any_more(
    world: World, members: tuple[Terminal, Terminal], how: str
) -> None:
    """It said nothing until its member wrote."""
    ada, bob = members
    key = bob.record("key", "show")["key"]
    with chat(world, bob) as terminal:
        terminal.type("half a line")
        terminal.expect_screen("> half a line")
        if how == "an owner removes it":
            ada.ok("members", "remove", key)
            terminal.expect_screen("an owner\n       removed it, and who did is not told")
        elif how == "it leaves":
            bob.ok("members", "remove", key, "--yes")
            terminal.expect_screen("it removed itself")
        else:
            ada.ok("delete", ada.record("list")["conversation"], "--hub", "--yes")
            terminal.expect_screen("reason  CONVERSATION_DELETED")
        terminal.expect_screen("nothing that you write here from now on is taken\n> half a line")
        assert terminal.screen.text.count("  reason  ") == 1
        terminal.type("\x15/status\r")
        terminal.expect_screen(" not at the hub yet")
        assert terminal.screen.text.count("nothing that you write") == 1
        assert terminal.leave(CTRL_D) == 0


def test_a_removed_member_takes_nothing_back(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    ada, bob = members
    bob.ok("send", "hello")
    with chat(world, bob) as terminal:
        ada.ok("members", "remove", bob.record("key", "show")["key"])
        terminal.expect_screen("nothing that you write here from now on is taken\n")
        terminal.type("/undo\r/status\r")
        terminal.expect_screen(" not at the hub yet")
        assert terminal.screen.text.count("  reason  KEY_REMOVED") == 2
        assert "undone: " not in terminal.screen.text
        assert terminal.leave(CTRL_D) == 0


def test_a_command_typed_behind_a_refused_text_is_run(world: World) -> None:
    """It was joined to the text, which is put back into the line, and sent as one with it."""
    ada, bob = pair(world)
    ada.ok("members", "remove", bob.record("key", "show")["key"])
    with chat(world, bob) as terminal:
        terminal.type("Hello?\r")
        terminal.expect_screen("\n> Hello?")
        terminal.expect_screen("back in the line · Ctrl-U clears it · / begins a command\n")
        terminal.type("/status\r")
        terminal.expect_screen(" not at the hub yet")
        terminal.expect_screen("\n> Hello?")
        terminal.type("\x15Once\rmore")
        terminal.expect_screen("not sent: Once")
        terminal.expect_screen("\n> more")
        terminal.type("\x15/quit\r")
        assert terminal.exit_code() == 0
