"""`/undo` in a chat at a terminal, where answers and questions wait (DECISIONS D499)."""

from collections.abc import Sequence
from pathlib import Path

from antiphon.cli.views.undone import TAKEN_BACK
from replica.log import Message, ToolCall, text_of
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.pty_terminal import CTRL_C, CTRL_D
from tests.antiphon.cli.test_chat_terminal import answering, chat, members, slow
from tests.antiphon.cli.test_terminal import HeldUp, at
from tests.support.scripted_host import Asked, Reply, Token, echo

__all__ = ["members", "slow"]


def test_undo_of_a_question_that_waits_leaves_the_answer_ahead_of_it(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, _ = members
    with answering(world, ada) as terminal:
        terminal.type("oops\r")
        terminal.expect_screen("next  you: oops")
        terminal.type("/undo\r")
        terminal.expect_screen("undone: oops")
        terminal.type("right\r")
        terminal.expect_screen("next  you: right")
        terminal.type("and on\r")
        terminal.expect_screen("next  you: and on")
        slow.wait_for_cancel()  # before that the host may seal the question
        slow.evict()
        terminal.expect_screen("one two three\n5 tokens")
        terminal.expect_screen("> right\nYou said: right\n")
        terminal.expect_screen("> and on\nYou said: and on\n")
        assert "You said: oops" not in terminal.screen.text
        terminal.type("last\r")
        terminal.expect_screen("> last\nYou said: last\n")
        assert terminal.leave(CTRL_D) == 0
    log = [line[20:] for line in ada.ok("log").splitlines()]
    assert log == [
        "one two three", "You said: one two three", "right", "You said: right",
        "and on", "You said: and on", "last", "You said: last",
    ]  # fmt: skip


def test_a_question_that_waited_is_shown_as_taken_back_once(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    """Its cancelled requests were shown, and turns were counted for them."""
    ada, bob = members
    with answering(world, ada) as terminal, at(world, bob, "log", "-f") as followed:
        terminal.type("oops\r")
        followed.expect_screen("  request  ")
        terminal.type("/undo\r")
        terminal.expect_screen("undone: oops")
        slow.wait_for_cancel()
        slow.evict()
        terminal.expect_screen("one two three\n5 tokens")
        assert terminal.leave(CTRL_D) == 0
        followed.expect_screen(TAKEN_BACK)
        followed.expect_screen("one two three\n")
        followed.leave(CTRL_C)
        assert "cancelled" not in followed.screen.text
    ada.ok("status")
    everything = ada.ok("log", "--all")
    assert sorted(line[20:] for line in everything.splitlines()) == [
        "You said: one two three", "one two three", "oops", TAKEN_BACK
    ]  # fmt: skip
    assert ada.ok("log", "--graph").count(TAKEN_BACK) == 1
    for shown in (everything, ada.ok("log", "--graph"), bob.run("chat", typed="/log\n").output):
        assert "cancelled" not in shown
    assert [one["turns"] for one in ada.records("list")] == [1]


def test_undo_of_a_question_under_way_cancels_its_answer(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, _ = members
    with answering(world, ada) as terminal:
        terminal.type("/undo\r")
        terminal.expect_screen("undone: one two three")
        slow.wait_for_cancel()
        slow.evict()
        terminal.type("right\r")
        terminal.expect_screen("> right\nYou said: right\n")
        assert terminal.leave(CTRL_D) == 0
    reasons = [r.get("finish_reason") for r in ada.records("log", "--all")]
    assert reasons.count("cancelled") == 1
    assert "one two three" not in ada.ok("log")


def test_after_cancel_and_undo_the_new_question_waits_for_the_hub_as_any_other(
    world: World, me: Terminal
) -> None:
    """It was said to be cancelled, and that Ctrl-C leaves, which cancelled it."""
    me.ok("new")
    with chat(world, me) as terminal:
        world.stop_hub()
        terminal.expect_screen("offline")
        terminal.type("X question\r")
        terminal.expect_screen("waiting for the hub")
        terminal.type("/cancel\r")
        terminal.expect_screen("1 request cancelled")
        terminal.type("/undo\r")
        terminal.expect("undone: X question")
        before = len(terminal.shown)
        terminal.type("Y instead\r")
        terminal.expect_screen("> Y instead\nanswering you · waiting for the hub; go on writing")
        assert "cancelling" not in terminal.shown[before:]
        terminal.type(CTRL_C)
        terminal.expect_screen("answering you · cancelling; Ctrl-C again leaves")
        assert terminal.leave(CTRL_C) == 130


def test_undo_of_another_members_question_that_waits_is_refused(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, bob = members
    with answering(world, ada) as terminal:
        bob.ok("send", "mine", "--no-wait")
        terminal.expect_screen("next  bob: mine")
        terminal.type("/undo\r")
        terminal.expect_screen("reason  UNDO_FORBIDDEN")
        slow.evict()
        terminal.expect_screen("bob: mine\nYou said: mine\n")
        terminal.type("/undo\r")
        terminal.expect_screen("undone: mine")
        terminal.type("instead\r")
        terminal.expect_screen("> instead\nYou said: instead\n")
        assert terminal.leave(CTRL_D) == 0
    assert [line[20:] for line in ada.ok("log").splitlines()][1:] == [
        "You said: one two three", "instead", "You said: instead"
    ]  # fmt: skip


def test_others_see_an_undone_question_no_longer_among_those_that_wait(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, bob = members
    with chat(world, ada) as terminal, chat(world, bob) as other:
        terminal.type("one two three\r")
        terminal.expect_screen("2 tokens")
        other.expect_screen("2 tokens")
        other.type("oops\r")
        terminal.expect_screen("next  bob: oops")
        other.type("/undo\r")
        other.expect_screen("undone: oops")
        slow.wait_for_cancel()
        slow.evict()
        terminal.expect_screen("5 tokens")
        terminal.type("and on\r")
        terminal.expect_screen("> and on\nYou said: and on\n4 tokens")
        assert terminal.screen.text.count("oops") == 1
        assert "bob took back: oops\n" in terminal.screen.text
        for word in ("cancelled", "0 tokens"):
            assert word not in terminal.screen.text
        assert [one.leave(CTRL_D) for one in (terminal, other)] == [0, 0]


def test_others_are_told_that_a_question_which_they_read_was_taken_back(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    ada, bob = members
    world.stop_host()
    with (
        chat(world, ada) as terminal,
        chat(world, bob) as other,
        at(world, ada, "log", "-f") as log,
    ):
        other.type("oops\r")
        terminal.expect_screen("bob: oops\n")
        log.expect_screen("oops\n")
        other.type("/undo\r")
        other.expect_screen("undone: oops\nit stays in the log, and no answer reads it")
        terminal.expect_screen("bob took back: oops\n>")
        log.expect_screen(TAKEN_BACK)
        assert "took back" not in other.screen.text
        assert [one.leave(CTRL_D) for one in (terminal, other)] == [0, 0]
        log.leave(CTRL_C)


def contexts_of(world: World, reply: Reply) -> list[list[str]]:
    """Start a host that replies so; return what it will have been told, for each request."""
    contexts: list[list[str]] = []

    def noting(asked: Asked) -> Sequence[Token | ToolCall]:
        bodies = map(asked.held.log.body, asked.seal.entries)
        contexts.append([text_of(body.parts) for body in bodies if isinstance(body, Message)])
        return reply(asked)

    world.stop_host()
    world.start_host(noting)
    return contexts


def test_undo_of_a_message_without_a_request_keeps_it_out_of_all_later_contexts(
    world: World, me: Terminal
) -> None:
    contexts = contexts_of(world, echo)
    me.ok("new", "--system", "Be brief.")
    me.ok("send", "hello")
    me.ok("send", "--no-request", "a note")
    shown = me.run("chat", typed="/undo\nfirst\nsecond\n")
    assert "undone: a note" in shown.stderr
    me.ok("send", "third")
    assert [context[-1] for context in contexts] == ["hello", "first", "second", "third"]
    assert all("a note" not in context for context in contexts)


def test_a_message_at_an_entry_is_followed_by_the_next_one(world: World, me: Terminal) -> None:
    contexts = contexts_of(world, echo)
    me.ok("new", "--system", "Be brief.")
    me.ok("send", "one")
    first = next(r["id"] for r in me.records("log") if r["kind"] == "generation")
    me.ok("send", "two")
    me.ok("send", "--at", first, "--no-request", "behind one")
    me.ok("send", "three")
    assert contexts[-1][-2:] == ["behind one", "three"]
    assert len([1 for context in contexts if "two" in context]) == 1
    me.ok("send", "four")
    assert contexts[-1][-1:] == ["four"]


def test_a_command_about_what_is_not_there_yet_or_with_words_behind_it_is_not_run(
    me: Terminal,
) -> None:
    me.ok("new")
    for command, reason in (
        ("/undo", "NOTHING_YET"),
        ("/again", "NOTHING_YET"),
        ("/fork", "NOTHING_YET"),
        ("/undo that, please", "USAGE_INVALID"),
        ("/quit now", "USAGE_INVALID"),
    ):
        done = me.run("chat", typed=f"{command}\n")
        assert done.exit_code == 1
        assert reason in done.stderr
    me.ok("chat", typed="/log\n/quit\n")


def test_undo_of_another_members_message_without_a_request_is_refused(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    ada, bob = members
    ada.ok("send", "hello")
    bob.ok("send", "--no-request", "a note")
    ada.ok("status")
    shown = ada.run("chat", typed="/undo\nfirst\n")
    assert "the last message is one of bob, and no answer has read it yet" in shown.stderr
    assert "UNDO_FORBIDDEN" in shown.stderr
    assert "a note" in ada.ok("log")


def test_undo_of_a_question_with_calls_of_tools_undoes_all_of_it(
    world: World, me: Terminal, tmp_path: Path
) -> None:
    def call(asked: Asked) -> Sequence[Token | ToolCall]:
        return [ToolCall("a", "book", "{}")] if asked.said == "Book it." else echo(asked)

    contexts = contexts_of(world, call)
    (tmp_path / "tools.json").write_text('[{"name": "book"}]')
    me.ok("new", "--system", "Be brief.")
    me.ok("send", "hello")
    me.ok("send", "Book it.", "--tools", str(tmp_path / "tools.json"))
    me.ok("send", "booked", "--result", "a")
    shown = me.run("chat", typed="/undo\ninstead\n/undo\n/undo\n/undo\n")
    assert "undone: Book it." in shown.stderr
    assert "undone: instead" in shown.stderr
    assert "undone: hello" in shown.stderr
    assert "there is no question on this branch yet" in shown.stderr  # the system text stays
    assert contexts == [["Be brief.", "hello"], ["Book it."], ["booked"], ["instead"]]
