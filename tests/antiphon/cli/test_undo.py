"""`/undo` in a chat at a terminal, where answers and questions wait (DECISIONS D499)."""

from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.pty_terminal import CTRL_D
from tests.antiphon.cli.test_chat_terminal import chat, members, slow
from tests.antiphon.cli.test_terminal import HeldUp

__all__ = ["members", "slow"]


def test_undo_of_a_question_that_waits_leaves_the_answer_ahead_of_it(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, _ = members
    with chat(world, ada) as terminal:
        terminal.type("one two three\r")
        terminal.expect_screen("2 tokens")
        terminal.type("oops\r")
        terminal.expect_screen("next  you: oops")
        terminal.type("/undo\r")
        terminal.expect_screen("undone: oops")
        terminal.type("right\r")
        terminal.expect_screen("next  you: right")
        terminal.type("and on\r")
        terminal.expect_screen("next  you: and on")
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


def test_undo_of_a_question_under_way_cancels_its_answer(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, _ = members
    with chat(world, ada) as terminal:
        terminal.type("one two three\r")
        terminal.expect_screen("2 tokens")
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


def test_undo_of_another_members_question_that_waits_is_refused(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, bob = members
    with chat(world, ada) as terminal:
        terminal.type("one two three\r")
        terminal.expect_screen("2 tokens")
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
