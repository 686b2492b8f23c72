"""Golden screens: what commands and a chat show on terminals of 60, 80 and 120 columns.

The files in screens/ can be read as documentation. Ids, ports, times and rates are
replaced by others of the same width. ANTIPHON_SCREENS=write writes the files anew.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import typer.main

from antiphon.cli.commands.doctor import Finding, _report
from antiphon.cli.main import app
from antiphon.cli.views.output import Output
from replica.log.entry import public_key
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.inside_terminal import screen_after, screen_of
from tests.antiphon.cli.picture import svg_of
from tests.antiphon.cli.processes import ROOT
from tests.antiphon.cli.pty_terminal import CTRL_C, CTRL_D
from tests.antiphon.cli.test_terminal import at
from tests.antiphon.cli.test_two_members import key_of_other, pair
from tests.support.background import Background
from tests.support.scripted_host import Asked, Token, words

FOLDER = Path(__file__).parent / "screens"
WIDTHS = (60, 80, 120)
COMMANDS = {
    "list": ["list"],
    "status": ["status"],
    "log": ["log"],
    "log-verbose": ["log", "-v"],
    "log-graph": ["log", "--graph"],
    "branches": ["branches"],
    "title": ["title"],
    "key-show": ["key", "show"],
    "verify": ["verify"],
    "send-alone": ["send", "A note for all of us.", "--no-request"],
    "error-id": ["log", "zzzz"],
    "error-usage": ["send", "--temprature", "0.5"],
    "error-range": ["send", "hello", "--temperature", "1000"],
    "error-continue": ["send", "--continue"],
    "error-file": ["import", "nowhere.bundle"],
    "error-no-conversation": ["--data-dir", "nowhere", "log"],
}
ALONE = {
    "new": [["new", "--system", "Be brief."]],
    "export": [["export", "A", "talk.bundle"], ["export", "A", "talk.bundle"],
               ["import", "talk.bundle"]],
    "key": [["key", "backup", "key.backup"], ["key", "backup", "key.backup"],
            ["key", "restore", "key.backup"]],
    "fork": [["fork", "--at", "M"], ["send", "Another way?"], ["branches"], ["switch", "M"],
             ["switch", "nowhere"]],
    "delete": [["delete", "A", "--yes"], ["list"]],
    "cancel": [["send", "Is it late?", "--no-wait", "--host", "H"], ["cancel"], ["cancel"]],
    "members": [["invite", "carol"], ["invitations"], ["members"], ["members", "remove", "x"]],
    "host-questions": [["top", "--once"], ["pages"], ["warm"], ["replay"]],
    "conform": [["conform", "core", "--only", "digest/", "--logs", "0", "--list"],
                ["conform", "core", "--only", "digest/", "--logs", "0", "--",
                 "python", "-m", "antiphon.conformance"],
                ["conform", "core", "--logs", "0", "--", "nowhere"],
                ["conform", "hub", "--only", "LINK-16", "HUB"], ["conform", "hub", "127.0.0.1:1"]],
    "conform-peers": [["conform", "divergence", "--only", "lane-fork", "--list"],
                      ["conform", "divergence", "--only", "lane-fork", "--seed", "S", "HUB"],
                      ["conform", "client", "--only", "links/closed", "--list"],
                      ["conform", "client", "--", "nowhere"],
                      ["conform", "host", "127.0.0.1:1"],
                      ["conform", "replay", "--only", "q4/verify", "--list"]],
    "hub-trust": [["hub", "trust", "--yes"]],
    "repair": [["repair"], ["clone", "A"], ["invitations"], ["join", "antiphon1.AAAA"]],
}  # fmt: skip
"""Commands in a folder of their own, one after the other. A is its conversation, M the first
message there, H a host that is away, HUB the hub's address, S a seed."""
LONG = (
    "Two nights in Lisbon would be nice, with a day at the sea between them, if the trains"
    " still run in November and nobody minds the rain."
)


TALK = {
    "Two days in Lisbon in November: what should we see?": (
        "Alfama on foot the first day, Belém by tram the second. It may rain: keep a museum in"
        " reserve."
    ),
    "The tile museum! And is there fado that isn't for tourists?": (
        "Tasca do Chico in the Bairro Alto, on a Monday. Come before nine, and be quiet while"
        " they sing."
    ),
    "Then Monday it is. Which tram goes to the tiles?": (
        "None: take bus 759 from Restauradores, and tram 15 to Belém the day after."
    ),
}
"""The conversation of the README's picture."""
PICTURE = ROOT / "docs" / "shared.svg"


def _reply(asked: Asked) -> list[Token]:
    return words(TALK.get(asked.said, f"You said: {asked.said}"))


def variables(world: World, me: Terminal) -> dict[str, str]:
    return {
        "ANTIPHON_DATA_DIR": str(me.data_dir), "ANTIPHON_HUB": world.address,
        "XDG_CONFIG_HOME": str(world.folder), "NO_COLOR": "1",
        "TERM": "xterm-256color", "ANTIPHON_SERVICES_DIR": str(world.folder),
        "ANTIPHON_PASSPHRASE": "a passphrase",
    }  # fmt: skip


@pytest.fixture(scope="module")
def story() -> Iterator[tuple[World, Terminal, Terminal]]:
    """A conversation of Ada and Bob with a branch, a title and a name."""
    folder = Path(tempfile.mkdtemp(prefix="screens-", dir="/tmp"))
    with Background() as background:
        world = World(folder, background)
        world.start_hub()
        # A rate of more digits would break a line elsewhere.
        world.start_host(_reply).clock = partial(next, count(step=0.2))
        ada, bob = pair(world)
        ada.ok("members", "name", bob.record("key", "show")["key"], "bob")
        first = ada.record("send", "Where shall we go?")
        bob.ok("send", LONG)
        ada.ok("send", "And in June?", "--at", first["generation"])
        ada.ok("title", "A trip")
        ada.ok("branches", "--name", "june")
        yield world, ada, bob
        world.stop_host()
        world.stop_hub()
    shutil.rmtree(folder)


def steady(shown: str) -> str:
    """Return a screen with what differs from run to run replaced, at the same width."""
    known: dict[str, str] = {}

    def id_of(match: "re.Match[str]") -> str:
        text = match[0]
        number = int(known.setdefault(text[:6], str(len(known))))
        pair_of = f"{'abcdef'[number % 6]}{number % 10}"
        return (pair_of * 32)[: len(text)]

    shown = re.sub(r"screens-\w{8}", "screens-01234567", shown)
    shown = re.sub(r"antiphon1\.[\w-]+(\n[\w-]+(?=\n))*", "antiphon1.A9vKfEb2vMXVrE9tSg…", shown)
    shown = re.sub(r"ssh -L\s\d{5}", lambda m: m[0][:-5] + "74110", shown)
    shown = re.sub(r"127\.0\.0\.1:\d{5}", "127.0.0.1:74110", shown)
    # A whole id that the terminal broke is copied as one.
    shown = re.sub(r"\b[0-9a-f]{60}\n[0-9a-f]{4}\b", f"{'a0' * 30}\na0a0", shown)
    shown = re.sub(r"\b[0-9a-f]{6,64}\b", id_of, shown)
    shown = re.sub(r"first token \d\.\d\d s", "first token 0.05 s", shown)
    shown = re.sub(r"pid \d+", "pid 4711", shown)
    shown = re.sub(r"\d,\d{3} bytes", "2,543 bytes", shown)
    shown = re.sub(r"[\d.,]+ tok/s", "25.0 tok/s", shown)
    shown = re.sub(r"(?:\bnow\b|\d+ s ago|\d+ min ago) *", _steady_time, shown)
    return "\n".join(line.rstrip() for line in shown.split("\n"))


def _steady_time(match: "re.Match[str]") -> str:
    # Its column is as wide as its header, "last ack".
    return "1 s ago".ljust(len(match[0]))


def compare(name: str, command: str, screens: dict[int, str]) -> None:
    """Compare with the golden file, or write it."""
    for columns, shown in screens.items():
        lines = [line for line in shown.splitlines() if not line.startswith("$ antiphon ")]
        assert max(map(len, lines), default=0) <= columns
    compare_steady(name, command, {columns: steady(shown) for columns, shown in screens.items()})


def compare_steady(name: str, command: str, screens: dict[int, str]) -> None:
    """Compare screens without anything that differs from run to run."""
    pieces = [f"$ {command}\n"]
    for columns, shown in screens.items():
        ruler = f"--- {columns} columns ".ljust(columns, "-")
        pieces.append(f"{ruler}\n{shown}\n")
    text, path = "".join(pieces), FOLDER / f"{name}.txt"
    if os.environ.get("ANTIPHON_SCREENS") == "write":
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path}: see the docstring of this file"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_its_golden_screen(
    story: tuple[World, Terminal, Terminal], name: str
) -> None:
    world, ada, _ = story
    arguments = COMMANDS[name]
    widths = WIDTHS if name != "send-alone" else WIDTHS[:1]
    shown = {c: screen_of(arguments, variables(world, ada), c) for c in widths}
    compare(name, f"antiphon {' '.join(arguments)}", shown)


def _all_commands() -> list[str]:
    root = typer.main.get_command(app)
    found = [""]
    for name, command in root.commands.items():  # type: ignore[attr-defined]  # a group
        found.append(name)
        found += [f"{name} {sub}" for sub in getattr(command, "commands", {})]
    return found


@pytest.mark.parametrize("command", _all_commands())
def test_a_help_shows_its_golden_screen(command: str, tmp_path: Path) -> None:
    arguments = [*command.split(), "-h"]
    shown = {c: screen_of(arguments, {"NO_COLOR": "1", "HOME": "/tmp"}, c) for c in WIDTHS}
    name = f"help/{command.replace(' ', '-') or 'antiphon'}"
    compare(name, " ".join(filter(None, ("antiphon", command, "-h"))), shown)


def test_a_chat_shows_its_golden_screen(story: tuple[World, Terminal, Terminal]) -> None:
    world, ada, _ = story
    shown = {}
    for columns in WIDTHS:
        chosen = ada.ok("new", "--system", "Be brief.").strip()
        ada.ok("title", "Chat", "--to", chosen)
        with at(world, ada, "chat", chosen, columns=columns) as terminal:
            terminal.expect_screen("/help\n")
            terminal.type(f"{LONG}\r")
            terminal.expect_screen("\n29 tokens")
            terminal.expect_screen("tok/s\n>")  # the lines below are typed at a prompt
            terminal.type('"""\rone\rtwo\r"""\r')
            terminal.expect_screen("You said: one\ntwo\n")
            terminal.expect_screen("two\n3 tokens")
            terminal.type("/branches\r")
            terminal.expect_screen("last message")
            terminal.type("/nonsense\r")
            terminal.expect_screen("there is no /nonsense")
            assert terminal.leave(CTRL_D) == 0
            shown[columns] = terminal.screen.text
    compare("chat", "antiphon chat", shown)


def test_two_members_and_the_model_are_on_the_picture_of_the_readme(
    story: tuple[World, Terminal, Terminal],
) -> None:
    world, ada, bob = story
    chosen = ada.ok("new", "--member", f"{bob.record('key', 'show')['key']}:writer").strip()
    ada.ok("title", "Lisbon", "--to", chosen)
    bob.ok("clone", chosen)
    asked = list(TALK)
    with at(world, ada, "chat", chosen) as terminal:
        terminal.expect_screen("/help\n")
        terminal.type(f"{asked[0]}\r")
        terminal.expect_screen(" tokens")
        bob.ok("send", asked[1], "--to", chosen)
        terminal.expect_screen("they sing.")
        terminal.type(f"{asked[2]}\r")
        terminal.expect_screen("the day after.\n14 tokens")
        terminal.type("So be it")
        terminal.expect_screen("> So be it")
        shown = terminal.screen.text
        assert terminal.leave(CTRL_C) == 0
    compare("shared", "antiphon chat", {80: shown})
    picture = svg_of(steady(shown), "antiphon chat", 80, ("bob",))
    if os.environ.get("ANTIPHON_SCREENS") == "write":
        PICTURE.write_text(picture)
    assert picture == PICTURE.read_text()
    assert "](docs/shared.svg)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", ALONE)
def test_commands_in_a_row_show_their_golden_screen(
    story: tuple[World, Terminal, Terminal], name: str
) -> None:
    world, _, _ = story
    away = public_key(key_of_other(world)).hex()
    second = ["--member", f"{away}:host"] if name == "cancel" else []
    shown = {}
    for columns in WIDTHS:
        me = world.replica(f"alone-{name}-{columns}")
        known = {"A": me.ok("new", *second).strip(), "H": away, "HUB": world.address}
        known |= {"python": sys.executable, "S": str(columns)}
        known["M"] = me.record("send", "Where shall we go?")["message"][:8]
        rows = []
        with chdir(me.data_dir):
            for line in ALONE[name]:
                arguments = [known.get(word, word) for word in line]
                rows.append(f"$ antiphon {' '.join(line)}")
                rows.append(screen_of(arguments, variables(world, me), columns))
        shown[columns] = "\n".join(rows)
    compare(name, f"antiphon {name}", shown)


def test_a_newcomer_joins_on_a_golden_screen(story: tuple[World, Terminal, Terminal]) -> None:
    world, _, _ = story
    shown = {}
    for columns in WIDTHS:
        owner, newcomer = (world.replica(f"{name}-{columns}") for name in ("owner", "newcomer"))
        owner.ok("new")
        code = owner.record("invite", "carol")["code"]
        with at(world, newcomer, "join", code, columns=columns) as terminal:
            terminal.expect_screen("[JOIN_PENDING]")
            with at(world, owner, "chat") as granting:
                terminal.expect_screen("next: antiphon chat")
                assert granting.leave(CTRL_C) == 0
            assert terminal.exit_code() == 0
            shown[columns] = terminal.screen.text
    compare("join", "antiphon join CODE", shown)


FINDINGS = (
    Finding("ok", "python", "3.11.7"),
    Finding("ok", "key", "a0" * 32),
    Finding("warn", "hub", "127.0.0.1:7411 is away: connection refused [HUB_UNREACHABLE]",
            "`antiphon up` starts one; until then you work offline."),
    Finding("fail", "store", "lost the last 2 entries written", "antiphon repair"),
)  # fmt: skip


def test_doctor_shows_its_findings() -> None:
    """Without its checks, which load torch in 5 s; test_run.py and test_hosts.py run them."""

    def report() -> None:
        out = Output()
        for finding in FINDINGS:
            _report(out, finding)

    shown = {c: screen_after(report, {"NO_COLOR": "1", "TERM": "xterm"}, c) for c in WIDTHS}
    compare("doctor", "antiphon doctor", shown)
