"""The place of the next message, where several processes of one member choose it."""

import pytest

from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.pty_terminal import CTRL_D, PtyTerminal
from tests.antiphon.cli.test_chat_terminal import chat, members

__all__ = ["members"]


@pytest.fixture
def ada(members: tuple[Terminal, Terminal]) -> Terminal:
    return members[0]


def parents_of(me: Terminal) -> dict[str, str]:
    """Return the message that each message follows, by its words, and so its answer too."""
    entries = {one["id"]: one for one in me.records("log", "--all", "--verbose")}
    found = {}
    for one in entries.values():
        if one["kind"] == "message" and one["parents"]:
            at = entries.get(one["parents"][0])
            while at is not None and at["kind"] not in ("message", "genesis"):
                at = entries.get(at["parents"][0])
            found[one["text"]] = at.get("text", "") if at is not None else ""
    return found


def ask(terminal: PtyTerminal, *questions: str) -> None:
    """Ask in a chat, each behind the answer before."""
    for words in questions:
        terminal.type(f"{words}\r")
        terminal.expect_screen(f"You said: {words}\n")


def test_a_message_comes_in_place_of_the_one_undone_in_its_own_chat(
    world: World, ada: Terminal
) -> None:
    """Another chat of the same member goes on behind what it shows."""
    with chat(world, ada) as first:
        ask(first, "first")
        with chat(world, ada) as second:
            first.type("/undo\r")
            first.expect_screen("undone: first")
            ask(second, "second")
            ask(first, "instead")
            assert second.leave(CTRL_D) == 0
        assert first.leave(CTRL_D) == 0
    assert parents_of(ada) == {"first": "", "second": "first", "instead": ""}


def test_a_command_beside_a_chat_does_not_use_up_its_choice(world: World, ada: Terminal) -> None:
    with chat(world, ada) as terminal:
        ask(terminal, "first", "next")
        terminal.type("/undo\r")
        terminal.expect_screen("undone: next")
        ada.ok("send", "from a shell")
        ask(terminal, "instead")
        assert terminal.leave(CTRL_D) == 0
    assert parents_of(ada) == {
        "first": "", "next": "first", "from a shell": "first", "instead": "first"
    }  # fmt: skip


def test_a_chat_stays_on_its_branch_where_another_process_forks(
    world: World, ada: Terminal
) -> None:
    with chat(world, ada) as terminal:
        ask(terminal, "first", "next")
        first = next(r["id"] for r in ada.records("log") if r.get("text") == "You said: first")
        ada.ok("fork", "--at", first)
        ask(terminal, "last")
        ada.ok("send", "from a shell")
        assert terminal.leave(CTRL_D) == 0
    assert parents_of(ada) == {
        "first": "", "next": "first", "last": "next", "from a shell": "first"
    }  # fmt: skip


def test_what_was_chosen_in_a_chat_that_ended_holds_for_the_next_one(
    world: World, ada: Terminal
) -> None:
    with chat(world, ada) as terminal:
        ask(terminal, "first")
        terminal.type("/undo\r")
        terminal.expect_screen("undone: first")
        assert terminal.leave(CTRL_D) == 0
    with chat(world, ada) as terminal:
        ask(terminal, "instead")
        assert terminal.leave(CTRL_D) == 0
    assert parents_of(ada) == {"first": "", "instead": ""}
