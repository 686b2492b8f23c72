"""docs/sharing.md, played: two machines, two keys, TLS, an agent, kill -9, and back.

Each machine is a shell with a home of its own, which gets the commands of the page in its
order and as they stand. The address in the page is replaced, and codes are pasted. Each of
the thirty commands is a process, which is forked to save it the imports.
"""

import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.antiphon.cli.processes import HOST_MODULE, ROOT
from tests.support.forked_program import PROGRAMS

PAGE = ROOT / "docs" / "sharing.md"
BLOCKS = re.findall(r"^```sh (\w+)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
ADDRESS = "192.0.2.7:7412"
END = "-- end of block --"
STEP_S = 120.0


class Machine:
    """A shell that runs blocks of the page."""

    def __init__(self, home: Path, **settings: str) -> None:
        home.mkdir()
        (home / "examples").symlink_to(ROOT / "examples")
        programs = home / "bin"
        programs.mkdir()
        here = f"-S {ROOT}/tests/support/forked_here.py antiphon"
        for name, argv in (("antiphon", here), ("python", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {argv} "$@"\n')
            (programs / name).chmod(0o755)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANTIPHON_", "XDG_"))}
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        env = kept | {"HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        env["FORKS"] = str(PROGRAMS.lend())
        self.shell = subprocess.Popen(
            ["/bin/bash"], cwd=home, env=env | settings, bufsize=0, start_new_session=True,
            pass_fds=[PROGRAMS.lend()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.shown = ""
        self._send("set -e\n")

    def begin(self, block: str) -> None:
        """Send a block to the shell, which echoes END behind it."""
        self.shown = ""
        self._send(f"{block}echo '{END}'\n")

    def paste(self, text: str) -> None:
        """Type a line of input, ahead of the commands that follow it."""
        self._send(f"{text}\n")

    def run(self, block: str) -> str:
        """Run a block to its end; return what it shows."""
        self.begin(block)
        return self.until(f"{END}\n")

    def until(self, pattern: str) -> str:
        """Read what the shell shows until it matches `pattern`; return all of the block."""
        deadline = time.monotonic() + STEP_S
        assert self.shell.stdout is not None
        while not re.search(pattern, self.shown):
            ready, _, _ = select.select([self.shell.stdout], [], [], deadline - time.monotonic())
            assert ready, f"no {pattern!r} in time in:\n{self.shown}"
            data = os.read(self.shell.stdout.fileno(), 65_536)
            assert data, f"the shell has ended:\n{self.shown}"
            self.shown += data.decode()
        return self.shown

    def _send(self, text: str) -> None:
        assert self.shell.stdin is not None
        self.shell.stdin.write(text.encode())

    def stop(self) -> None:
        """End the shell and what it has started in the background."""
        assert self.shell.stdin is not None
        self.shell.stdin.write(b"kill -9 $AGENT; kill $UP; wait\n")
        self.shell.stdin.close()
        self.shell.wait(timeout=30)
        assert self.shell.stdout is not None
        self.shell.stdout.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.2", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """Ada's machine, with free ports and a scripted host, and Bob's, which has no settings."""
    hub = {"ANTIPHON_HUB": f"127.0.0.1:{free_port()}", "ANTIPHON_HOST_MODULE": HOST_MODULE}
    found = {"ada": Machine(tmp_path / "ada", **hub), "bob": Machine(tmp_path / "bob")}
    yield found
    for machine in found.values():
        machine.stop()


def played(machines: dict[str, Machine]) -> list[str]:
    """Play the page; return what each block has shown."""
    shown, code, waiting = [], "", None
    address = f"127.0.0.2:{free_port()}"
    for name, block in BLOCKS:
        machine = machines[name]
        commands = block.replace(ADDRESS, address)
        if "--wait" in block:
            machine.begin(commands)
            code = re.findall(r"antiphon1\.\S+", machine.until(r"antiphon1\.\S+\n"))[0]
            waiting = machine
            continue
        if "read -r" in block:
            first, rest = commands.split("\n", 1)
            hub_keys = re.findall(r"(?m)^public .* key (\w{64})$", "\n".join(shown))
            machine.paste(f"{first}\n{hub_keys[-1] if 'HUB_KEY' in first else code}")
            commands = rest
        shown.append(machine.run(commands))
        if waiting is not None:
            shown.append(waiting.until(f"{END}\n"))
            waiting = None
    return shown


def test_the_page_is_played_as_it_stands(machines: dict[str, Machine], tmp_path: Path) -> None:
    began = time.monotonic()
    shown = "\n".join(played(machines))
    assert time.monotonic() - began < 300
    assert "bob has joined" in shown
    assert "agent has joined" in shown
    assert "Hello from Bob." in shown
    assert shown.count("done: ") == 1
    assert len((tmp_path / "bob" / "agent" / "bookings.txt").read_text().splitlines()) == 1
    last = machines["ada"].shown
    assert re.search(r"writer +bob +removed", last), last
    assert "You said: Is anybody there?" in shown  # asked without a hub
    assert "You said: Hello from Bob's second device." in shown
