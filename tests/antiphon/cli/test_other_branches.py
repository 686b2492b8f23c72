"""The branches that a chat announces while the next message follows a chosen entry."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import antiphon
from antiphon.cli.chat.chat_session import ChatSession
from antiphon.cli.chat.other_branches import OtherBranches
from antiphon.cli.common.session import Choices
from antiphon.cli.views.names import Names
from replica.log.body import Cancel
from replica.log.entry import Conflict, Entry
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.pty_terminal import CTRL_D, PtyTerminal
from tests.antiphon.cli.test_chat_terminal import chat, members
from tests.antiphon.cli.test_terminal import HeldUp
from tests.support.scripted_host import echo, no_pause, scripted_host
from tests.support.turns import Turns

__all__ = ["members"]


def asked_beside(terminal: PtyTerminal, bob: Terminal) -> None:
    """Let Bob ask twice; the chat announces where, once, and shows it behind `/switch`."""
    bob.ok("send", "his first")
    terminal.expect_screen("another branch, by bob: his first · /switch ")
    terminal.expect_screen(" goes there")
    (digits,) = re.findall(r"/switch ([0-9a-f]+)", terminal.screen.text)
    bob.ok("send", "his second")
    assert "You said: his" not in terminal.screen.text
    terminal.type(f"/switch {digits}\r")
    terminal.expect_screen("You said: his second")
    assert terminal.screen.text.count("another branch") == 1


@pytest.mark.parametrize(
    ("command", "said"), [("/fork", "the next message follows"), ("/undo", "undone: hello")]
)
def test_what_others_write_behind_the_end_of_a_branch_that_was_left_is_announced_once(
    world: World, members: tuple[Terminal, Terminal], command: str, said: str
) -> None:
    """Nothing was said, and nothing shown."""
    ada, bob = members
    ada.ok("send", "hello")
    bob.ok("status")
    with chat(world, ada) as terminal:
        terminal.type(f"{command}\r")
        terminal.expect_screen(said)
        asked_beside(terminal, bob)
        assert terminal.leave(CTRL_D) == 0


def test_what_others_write_on_the_branch_that_was_left_for_an_entry_is_announced_once(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    ada, bob = members
    first = ada.record("send", "hello")
    ada.ok("send", "and on")
    bob.ok("status")
    with chat(world, ada) as terminal:
        terminal.type(f"/fork {first['generation']}\r")
        terminal.expect_screen("the next message follows")
        asked_beside(terminal, bob)
        terminal.type(f"/fork {first['generation']}\r")
        terminal.expect("the next message follows")
        bob.ok("send", "his third")
        terminal.expect_screen("another branch, by bob: his third · /switch ")
        assert terminal.leave(CTRL_D) == 0


def test_what_others_write_while_one_writes_behind_a_chosen_entry_is_announced_once(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    ada, bob = members
    ada.ok("send", "hello")
    bob.ok("status")
    with chat(world, ada) as terminal:
        terminal.type("/fork\r")
        terminal.expect_screen("the next message follows")
        with terminal.suspended():
            bob.ok("send", "his")
            terminal.type("hers\r")
        terminal.expect_screen("another branch, by bob: his · /switch ")
        terminal.expect_screen("You said: hers")
        assert "You said: his" not in terminal.screen.text
        assert terminal.screen.text.count("another branch") == 1
        assert terminal.leave(CTRL_D) == 0


@contextmanager
def second_host(world: World, owner: Terminal) -> Iterator[str]:
    """Run another host, granted by an owner, which answers while the first one is busy."""
    context = scripted_host(world.folder / "second", world.address, echo, no_pause)
    host = world.background.run(context.__aenter__())
    with antiphon.open(owner.data_dir, hub=world.address) as me:
        (conversation,) = me.conversations()
        conversation.grant(host.replica.public, "host")
        assert conversation.sync()
    try:
        yield host.replica.public.hex()
    finally:
        world.background.run(context.__aexit__(None, None, None))


def test_what_others_write_during_an_answer_is_announced_behind_its_line(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    ada, bob = members
    first = ada.record("send", "hello")["generation"]
    with second_host(world, ada) as second:
        bob.ok("status")
        host = HeldUp(world)
        with chat(world, ada) as terminal:
            terminal.type("/fork\r")
            terminal.expect_screen("the next message follows")
            terminal.type("one two three\r")
            terminal.expect_screen("2 tokens")
            bob.ok("send", "his", "--at", first, "--host", second)
            while "You said: his" not in ada.ok("log", "--graph"):
                pass  # the chat holds the log that is read here
            host.evict()
            terminal.expect_screen("another branch, by bob: his · /switch ")
            assert "You said: one two three\n" in terminal.screen.text
            assert terminal.leave(CTRL_D) == 0


def test_what_one_asked_before_a_fork_is_no_branch_of_others(
    world: World, members: tuple[Terminal, Terminal]
) -> None:
    ada, bob = members
    ada.ok("send", "hello")
    with chat(world, ada) as terminal:
        world.stop_host()
        terminal.type("mine\r")
        terminal.expect_screen("answering you")
        terminal.type("/fork\r")
        terminal.expect_screen("the next message follows")
        world.start_host()
        bob.ok("send", "his")
        terminal.expect_screen("another branch, by bob: his · /switch ")
        assert terminal.screen.text.count("another branch") == 1
        assert terminal.leave(CTRL_D) == 0


class Saved:
    """What a session saves about the next message."""

    def __init__(self) -> None:
        self.saved = Choices()

    async def choices(self, _store: object, _conversation: object) -> Choices:
        return self.saved

    async def choose_next(self, _store: object, _conversation: object, choices: Choices) -> None:
        self.saved = choices


async def announced(chat: ChatSession, *answers: Entry) -> list[str]:
    """Return the branches that are announced when the seals of these answers come."""
    said: list[str] = []
    screen: Any = SimpleNamespace(note=lambda words, _style: said.append(words))
    others = OtherBranches(chat, screen)
    seals = (chat.held.log.entries[answer.header.parents[0]] for answer in answers)
    others.receive(seals)
    await others.look()
    await others.announce()
    return said


async def test_a_question_that_was_undone_is_no_other_branch_though_the_host_sealed_it() -> None:
    turns = Turns()
    replica: Any = SimpleNamespace(public=turns.owner.public, store=None)
    session: Any = Saved()
    chat = ChatSession(session, replica, turns.held, None, {}, Names(own=turns.owner.public))
    said = turns.say(turns.owner, "Oops.", turns.genesis)
    asked = turns.ask(turns.owner, said)
    apart = turns.ask(turns.owner, turns.add(turns.owner, Cancel(), asked), conflict=Conflict.FORK)
    turns.add(turns.owner, Cancel(), apart)
    await chat.go_instead_of(said.id)
    place = chat.place()
    parents = map(turns.entry, place.parents)
    instead = turns.ask(turns.owner, turns.say(turns.owner, "Right.", *parents), conflict=1)
    chat.branch, chat.at = instead.id.hex(), ""
    late = turns.answer(asked)
    assert await announced(chat, turns.answer(instead), late) == []
    elsewhere = turns.ask(turns.owner, turns.say(turns.owner, "Aside.", turns.genesis), conflict=1)
    (words,) = await announced(chat, turns.answer(elsewhere))
    assert words.startswith("another branch, by you: Aside.")
