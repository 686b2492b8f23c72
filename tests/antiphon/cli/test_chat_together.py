"""A chat at a terminal where several members ask at once."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from antiphon.cli.chat.chat_screen import WHOLE
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.pty_terminal import CTRL_C, CTRL_D, PtyTerminal
from tests.antiphon.cli.test_chat_terminal import answering, chat, members, slow
from tests.antiphon.cli.test_terminal import HeldUp, at

__all__ = ["members", "slow"]


@pytest.fixture
def named(members: tuple[Terminal, Terminal]) -> tuple[Terminal, Terminal]:
    """Ada and Bob, each of whom knows the other by name."""
    ada, bob = members
    bob.ok("members", "name", ada.record("key", "show")["key"], "ada")
    return ada, bob


@contextmanager
def both(world: World, ada: Terminal, bob: Terminal) -> Iterator[tuple[PtyTerminal, PtyTerminal]]:
    """Start a chat of each; both show the beginning of an answer to Ada."""
    with answering(world, ada) as terminal, chat(world, bob) as other:
        other.expect_screen("ada: one two three\nYou said:\nanswering ada")
        yield terminal, other


def test_a_writer_cancels_a_question_that_waits_behind_another_members_answer(
    world: World, named: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    """It was refused with ROLE_FORBIDS, and the question stayed."""
    ada, bob = named
    with answering(world, ada), chat(world, bob) as other:
        other.expect_screen("answering ada")
        other.type("/cancel\r")
        other.expect_screen("next    Wait for it, or go on beside it: ")
        other.type("mine\r")
        other.expect_screen("next  you: mine")
        other.type("/cancel\r")
        other.expect_screen(
            "1 request cancelled; the next message waits for the answer to ada, which only\n"
            "ada or an owner can cancel\n"
        )
        slow.wait_for_cancel()  # before that the host may seal the question
        slow.evict()
        other.expect_screen(" one two three\n5 tokens")
        other.expect_screen("> mine\ncancelled; no answer came\n")
        assert other.leave(CTRL_D) == 0
    with chat(world, bob) as other:  # opened again, it is said too
        other.expect_screen("> mine\ncancelled; no answer came\n")
        assert other.leave(CTRL_D) == 0
    log = ada.ok("log")
    assert "You said: mine" not in log
    assert log.count("cancelled; no answer came") == 1


@pytest.mark.parametrize("at_hub", [True, False])
def test_a_conversation_that_its_owner_deletes_beside_the_chat_stays_deleted(
    world: World, members: tuple[Terminal, Terminal], at_hub: bool
) -> None:
    """The next line was refused with CONVERSATION_NOT_FOUND, and the advice to ask an owner."""
    ada, _ = members
    with chat(world, ada) as terminal:
        ada.ok("delete", "--yes", *(["--hub"] if at_hub else []))
        terminal.expect_screen("nothing that you write here from now on is taken\n")
        for typed in ("hello", "/title Mine"):
            terminal.type(f"\x15{typed}\r")
            terminal.expect("CONVERSATION_DELETED")
        assert "NOT_FOUND" not in terminal.screen.text
        assert terminal.leave(CTRL_C) == 0


def test_an_answer_that_comes_behind_another_members_names_its_question_again(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    """It stood under the other's answer: one's own question had been printed above both."""
    ada, bob = members
    world.stop_host()
    with chat(world, ada) as terminal:
        world.stop_hub()
        terminal.expect_screen("offline")
        bob.ok("send", "from bob", "--no-wait")
        ada.ok("send", "a note", "--no-request")  # with which her question is the later one
        terminal.expect_screen("> a note\n")
        terminal.type("mine\r")
        terminal.expect_screen("> mine")
        world.start_hub()
        bob.ok("status")
        world.start_host()
        for size in ("\n4 tokens", "\n3 tokens"):
            terminal.expect_screen(size)
        lines = terminal.screen.lines
        sizes = {line[:8]: at for at, line in enumerate(lines)}
        # A host that hears of one question before the other answers that one first.
        assert lines[sizes["4 tokens"] - 2] == "bob: from bob"
        assert lines[sizes["3 tokens"] - 2] in ("> mine", "you: mine")
        terminal.type("and then?\r")
        terminal.expect_screen("\n> and then?\nYou said: and then?\n")
        assert terminal.leave(CTRL_D) == 0


def test_an_answer_that_goes_on_below_what_a_command_printed_is_named(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    ada, _ = members
    with answering(world, ada) as terminal:
        terminal.type("/log\r")
        terminal.expect_screen("  you       one two three\n")
        slow.evict()
        terminal.expect_screen("\nyou: one two three\n one two three\n5 tokens")
        assert terminal.leave(CTRL_D) == 0


@pytest.mark.parametrize("is_last", [True, False])
def test_a_cancelled_answer_whose_end_comes_late_is_shown_once(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp, is_last: bool
) -> None:
    """Its text was shown again as if it were another answer."""
    ada, bob = members
    with answering(world, ada) as terminal:
        terminal.type(CTRL_C)
        terminal.expect_screen("cancelling")
        terminal.expect_screen("You said:\n>")  # its end is not waited for any more
        if not is_last:
            bob.ok("send", "a note", "--no-request")
            terminal.expect_screen("bob: a note\n>")
        slow.evict()
        terminal.expect_screen("\ncancelled\n2 tokens")
        shown = terminal.screen.text
        if is_last:
            assert "> one two three\nYou said:\ncancelled\n" in shown
            assert shown.count("You said:") == 1
        else:
            assert f"\nyou: one two three\n{WHOLE}\nYou said:\ncancelled\n" in shown
        assert terminal.leave(CTRL_D) == 0


def test_a_question_beside_one_that_waits_leaves_the_answers_ahead_of_that(
    world: World, named: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    """The chat showed them as part of the branch; the model read none of them."""
    _, bob = named
    with both(world, *named) as (_, other):
        other.type("mine\r")
        other.expect_screen("next  you: mine")
        other.type("/again\r")
        other.expect_screen("You said:\nthis answer goes on in another branch\n> mine\n")
        slow.evict()
        # The first question goes on elsewhere, which is announced above the answer or below it.
        other.expect_screen(" mine\nYou said: mine\n")
        assert "You said: one two three" not in other.screen.text
    assert [line[20:] for line in bob.ok("log").splitlines()] == [
        "one two three", "mine", "You said: mine"
    ]  # fmt: skip


def test_ctrl_c_is_offered_to_who_asked_alone(
    world: World, named: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    """Others were told that it cancels the answer: it left, or cancelled their own question."""
    with both(world, *named) as (terminal, other):
        terminal.type(CTRL_C)
        terminal.expect_screen("answering you · cancelling; Ctrl-C again leaves")
        other.expect_screen("answering ada · cancelling\n")
        slow.wait_for_cancel()
        slow.evict()
        terminal.expect_screen("\ncancelled\n2 tokens")
        world.stop_host()
        terminal.type("more\r")
        terminal.expect_screen("its host left the hub; waiting for it · Ctrl-C cancels\n")
        other.expect_screen("answering ada · its host left the hub; waiting for it\n")


def test_a_question_that_waits_is_cancelled_at_once(
    world: World, named: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    """It stayed in the panel for three seconds, without a word."""
    with both(world, *named) as (_, other):
        other.type("mine\r")
        other.expect_screen("next  you: mine")
        other.type(CTRL_C)
        other.expect_screen("You said:\ncancelled: mine\nanswering ada · 2 tokens\n>")
        slow.wait_for_cancel()  # before that the host may seal the question
        slow.evict()
        other.expect_screen("\nada: one two three\n one two three\n5 tokens")
        other.expect_screen("> mine\ncancelled; no answer came\n")


def test_a_chat_that_is_opened_says_what_came_before_and_names_the_question_of_its_first_answer(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    ada, _ = members
    for words in ("one", "two", "three", "four"):
        ada.ok("send", words)
    ada.ok("send", "a note", "--no-request")
    with chat(world, ada) as terminal:
        terminal.expect_screen(
            "/help\n3 earlier messages · /log shows all\nyou: two\nYou said: two\n> three\n"
        )
        assert terminal.leave(CTRL_D) == 0


def test_ones_own_question_is_cancelled_also_while_another_members_answer_ends(
    world: World, named: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    """It left the chat."""
    with both(world, *named) as (terminal, other):
        other.type("mine\r")
        other.expect_screen("next  you: mine")
        terminal.type(CTRL_C)
        other.expect_screen("answering ada · cancelling\nnext  you: mine\n")
        other.type(CTRL_C)
        other.expect_screen("cancelled: mine\n")
        slow.evict()
        other.expect_screen("\ncancelled\n2 tokens")


def test_who_waits_for_a_host_that_was_removed_is_told(
    world: World, named: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    """Neither a chat nor `send` said a word."""
    ada, bob = named
    with answering(world, ada) as terminal, at(world, bob, "send", "and mine") as sending:
        sending.expect("this goes after it")
        terminal.expect_screen("next  bob: and mine")
        ada.ok("members", "remove", slow.host.replica.public.hex(), "--yes")
        terminal.expect_screen(
            "answering you · its host was removed; no answer comes · Ctrl-C cancels\n"
        )
        sending.expect("was removed")
        assert sending.exit_code() == 1
        assert "ANSWER_OVERDUE" in sending.shown
        assert "you wait for a host that was removed, next bob" in ada.run("status").stderr
        terminal.type(CTRL_C)
        terminal.expect_screen("cancelling")
        assert terminal.leave(CTRL_D) == 0


def test_send_does_not_wait_for_a_host_that_left_behind_a_cancelled_request(
    world: World, members: tuple[Terminal, Terminal], slow: HeldUp
) -> None:
    """It waited for ever, while `cancel` said that nothing is waited for."""
    ada, _ = members
    with at(world, ada, "send", "one two three") as sending:
        sending.expect("2 tokens")
        world.stop_host()
        sending.expect("its host left the hub; waiting for it")
        ada.ok("cancel")
        sending.expect("was cancelled, and its host")
        assert sending.exit_code() == 1
        assert "Ask again: `antiphon send TEXT`" in sending.shown
    world.start_host()
    assert "You said: anew" in ada.ok("send", "anew")


def test_a_question_that_was_next_is_said_to_be_cancelled(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    ada, _ = members
    world.stop_host()
    with chat(world, ada) as terminal:
        terminal.type("nobody there\r")
        terminal.expect_screen("its host left the hub")
        terminal.type(CTRL_C)
        terminal.expect_screen("> nobody there\ncancelled; no answer came\n>")
        assert terminal.leave(CTRL_D) == 0
