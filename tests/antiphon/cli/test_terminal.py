"""At a real terminal: Ctrl-C and the end of input, at prompts and in the middle of an answer."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.cells import cell_len

from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.processes import environment
from tests.antiphon.cli.pty_terminal import CTRL_C, CTRL_D, CTRL_Z, PtyTerminal, ShellTerminal
from tests.support.files import query
from tests.support.scripted_host import ScriptedHost


class HeldUp:
    """A host that stops before its third token until it is released."""

    def __init__(self, world: World) -> None:
        self._go_on = asyncio.Event()
        self._world = world
        world.stop_host()
        self.host: ScriptedHost = world.start_host(pace=self._wait)

    async def _wait(self, index: int) -> None:
        await asyncio.sleep(0)
        if index == 2:
            await self._go_on.wait()

    def evict(self) -> None:
        """Let the answer continue."""
        self._world.background.run(self._set())

    def wait_for_cancel(self) -> None:
        """Wait until the host has received the cancellation."""
        self._world.background.run(self._cancelled())

    async def _set(self) -> None:
        self._go_on.set()

    async def _cancelled(self) -> None:
        replica = self.host.replica
        (order,) = (held.order for held in replica.shelf.values())
        assert await replica.wait_for(lambda: any(map(order.is_cancelled, order.requests)), 10.0)


@pytest.fixture
def held_up(world: World, me: Terminal) -> Iterator[HeldUp]:
    """A conversation whose host streams two tokens and waits."""
    host = HeldUp(world)
    me.ok("new")
    yield host
    host.evict()


def at(
    world: World, me: Terminal, *arguments: str, columns: int = 80, rows: int = 40
) -> PtyTerminal:
    """Start the command on a terminal."""
    return PtyTerminal([*arguments], variables_of(world, me), columns, rows)


def variables_of(world: World, me: Terminal) -> dict[str, str]:
    """Return the environment of a command at a terminal."""
    return environment(world.folder) | {
        "ANTIPHON_DATA_DIR": str(me.data_dir), "ANTIPHON_HUB": world.address,
        "TERM": "xterm-256color",
    }  # fmt: skip


@contextmanager
def interrupted(world: World, me: Terminal, held_up: HeldUp) -> Iterator[PtyTerminal]:
    """Start a chat, and press Ctrl-C in the middle of an answer; the host has read the CANCEL."""
    with at(world, me, "chat") as terminal:
        terminal.expect("> ")
        terminal.type("one two three\n")
        terminal.expect("2 tokens")
        terminal.type(CTRL_C)
        held_up.wait_for_cancel()
        yield terminal


def test_ctrl_c_in_the_middle_of_an_answer_keeps_the_received_text(
    world: World, me: Terminal, held_up: HeldUp
) -> None:
    with interrupted(world, me, held_up) as terminal:
        held_up.evict()
        terminal.expect("cancelled")
        terminal.expect("> ")
        assert terminal.leave(CTRL_D) == 0
    (answer,) = (r for r in me.records("log") if r["kind"] == "generation")
    assert (answer["text"], answer["finish_reason"]) == ("You said:", "cancelled")


def test_a_second_ctrl_c_leaves_and_says_where_the_answer_goes(
    world: World, me: Terminal, held_up: HeldUp
) -> None:
    with interrupted(world, me, held_up) as terminal:
        assert terminal.leave(CTRL_C) == 130
        assert "goes on into the log" in terminal.shown
        assert "Task" not in terminal.shown
        assert "Traceback" not in terminal.shown


def test_ctrl_c_while_sending_says_where_the_answer_goes(
    world: World, me: Terminal, held_up: HeldUp
) -> None:
    with at(world, me, "send", "one two three") as terminal:
        terminal.expect("2 tokens")
        assert terminal.leave(CTRL_C) == 130
        assert "goes on into the log" in terminal.shown
        assert "Traceback" not in terminal.shown
    held_up.evict()
    assert "You said: one two three" in me.ok("log", "--all")


@pytest.mark.parametrize(("typed", "keys"), [("half a line", CTRL_C), ("", CTRL_D)])
def test_at_the_prompt_ctrl_c_and_the_end_of_input_leave(
    world: World, me: Terminal, typed: str, keys: str
) -> None:
    me.ok("new")
    with at(world, me, "chat") as terminal:
        terminal.expect("> ")
        terminal.type(typed)
        terminal.expect(typed)
        assert terminal.leave(keys) == 0
        assert "Traceback" not in terminal.shown
    assert {record["kind"] for record in me.records("log")} == {"genesis", "member"}


@pytest.mark.parametrize("keys", ["n\n", CTRL_C, CTRL_D])
def test_deleting_is_not_done_unless_agreed_to(world: World, me: Terminal, keys: str) -> None:
    me.ok("new")
    with at(world, me, "delete", "--hub") as terminal:
        terminal.expect("[y/N]: ")
        assert terminal.leave(keys) == 1
        assert "Traceback" not in terminal.shown
    assert me.records("list")
    with at(world, me, "delete", "--hub") as terminal:
        terminal.expect("[y/N]: ")
        assert terminal.leave("y\n") == 0
    assert me.records("list") == []


def test_ctrl_c_at_a_passphrase_writes_nothing(world: World, me: Terminal) -> None:
    me.ok("key", "show")
    file = world.folder / "key.pem"
    with at(world, me, "key", "backup", str(file)) as terminal:
        terminal.expect("Passphrase:")
        assert terminal.leave(CTRL_C) == 130
    assert not file.exists()


def test_an_error_is_wrapped_at_words_on_a_narrow_terminal(world: World, me: Terminal) -> None:
    with at(world, me, "log", "zzzz", columns=50) as terminal:
        assert terminal.exit_code() == 1
    assert max(map(len, terminal.lines)) <= 50
    assert any(line.startswith("          ") for line in terminal.lines)


def test_a_followed_log_ends_where_its_store_can_not_be_read_any_more(
    world: World, me: Terminal
) -> None:
    me.ok("new")
    me.ok("send", "before")
    with at(world, me, "log", "-f") as terminal:
        terminal.expect("following")
        me.ok("send", "after")
        terminal.expect("You said: after")
        query(me.store_path, "DROP TABLE entries")
        terminal.expect("STORE_CORRUPT")
        assert terminal.exit_code() == 1


@pytest.mark.parametrize("is_linked", [True, False])
def test_a_followed_log_ends_with_its_conversation(
    world: World, me: Terminal, is_linked: bool
) -> None:
    """It went on without a word, and showed what others wrote at the hub."""
    me.ok("new")
    me.ok("send", "before")
    with at(world, me, "log", "-f") as terminal:
        terminal.expect("following")
        me.ok("send", "after")
        terminal.expect("You said: after")
        if not is_linked:
            world.stop_hub()
        me.ok("delete", "--yes")
        terminal.expect("CONVERSATION_DELETED")
        assert terminal.exit_code() == 1


def test_a_log_fits_a_narrow_terminal(world: World, me: Terminal) -> None:
    me.ok("new")
    me.ok("send", "日本語のとても長い文章は、端末の幅で折り返される。" * 4)
    with at(world, me, "log", columns=40) as terminal:
        assert terminal.exit_code() == 0
    wide = [line for line in terminal.lines if "語" in line]
    assert wide
    assert max(map(cell_len, wide)) <= 40


def test_ctrl_z_gives_the_shell_the_screen_of_top_and_fg_takes_it_back(
    world: World, me: Terminal
) -> None:
    shown, hidden = "\x1b[?1049l", "\x1b[?1049h"
    with ShellTerminal([], variables_of(world, me)) as terminal:
        terminal.expect("sh: ")
        terminal.type(f"{sys.executable} -m antiphon top\r")
        terminal.expect(hidden)
        terminal.type(CTRL_Z)
        terminal.expect(shown)
        terminal.expect("sh: ")
        assert terminal.has_echo
        terminal.type("fg\r")
        terminal.expect(hidden)
        assert not terminal.has_echo
        terminal.type("q")
        terminal.expect(shown)
        terminal.expect("sh: ")
        assert terminal.has_echo
        terminal.type("exit\r")
        assert terminal.exit_code() == 0


def test_top_on_a_terminal_that_can_not_draw_asks_once(world: World, me: Terminal) -> None:
    variables = variables_of(world, me) | {"TERM": "dumb"}
    with PtyTerminal(["top"], variables) as terminal:
        terminal.expect("error: ")
        assert terminal.exit_code() == 1
