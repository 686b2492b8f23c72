"""Every command beside a running process that holds the data folder (DECISIONS D340, D364)."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest
from typer.testing import Result

from replica.io.process.daemon import STOP_AT_EOF
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.processes import ROOT
from tests.antiphon.cli.test_hub_trust import change_key

AGENT = """
import sys, antiphon
with antiphon.open(sys.argv[1], hub=sys.argv[2], label="agent") as me:
    print("open", flush=True)
    sys.stdin.read()
"""


@contextmanager
def agent(world: World, me: Terminal) -> Iterator[int]:
    """Run a process that holds the folder; yield its pid."""
    argv = [sys.executable, "-c", AGENT, str(me.data_dir), world.address]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop(STOP_AT_EOF, None)
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert _piped(process.stdout).readline() == "open\n"
        try:
            yield process.pid
        finally:
            _piped(process.stdin).close()
            assert process.wait(20) == 0


def _piped(stream: "IO[str] | None") -> "IO[str]":
    assert stream is not None
    return stream


@pytest.fixture
def bob(world: World) -> Terminal:
    return world.replica("bob")


def _error(result: Result) -> dict[str, str]:
    """Return the fields of the error of a command."""
    assert result.exit_code == 1, result.output
    lines = [line.split(maxsplit=1) for line in result.stderr.splitlines()]
    return {words[0]: words[1] for words in lines if len(words) == 2}


def test_every_command_works_beside_a_process_or_names_it(
    world: World, me: Terminal, bob: Terminal
) -> None:
    """Its reason for 5 s: a process of its own, and a newcomer who waits for it."""
    mine = me.record("new")["conversation"]
    theirs = bob.record("new")["conversation"]
    backup = me.data_dir / "backup"
    with agent(world, me) as pid:
        # What another process can do for them.
        code = me.record("invite", "bob", mine)["code"]
        assert me.record("invite", "carol", mine)["code"]
        assert "1 revoked" in me.run("invitations", "--revoke", "carol").stderr
        # The agent answers bob: no command of mine is running.
        assert bob.record("join", code)["conversation"] == mine
        code = bob.record("invite", "me", theirs)["code"]
        assert me.refused("join", code, "--no-wait") == "JOIN_PENDING"
        bob.ok("status")  # which answers meanwhile
        assert me.record("join", code)["conversation"] == theirs
        me.ok("hub", "trust", "--yes")
        me.ok("members", "name", bob.record("key", "show")["key"], "robert", mine)
        assert "robert" in me.ok("members", "list", mine)
        bundle = me.data_dir / "a.bundle"
        me.ok("export", mine, str(bundle))
        me.ok("import", str(bundle))
        me.ok("verify", "--all")
        me.ok("key", "show")
        me.ok("key", "backup", str(backup))
        me.ok("key", "restore", str(backup))
        assert me.refused("key", "restore", _backup_of(bob)) == "KEY_FILE_TAKEN"
        # What it can't.
        error = _error(me.run("repair"))
        assert error["reason"] == "STORE_LOCKED"
        assert error["error:"].startswith(f"process {pid} holds ")
        assert error["next"].startswith("End that process")
        # A key that is lost meanwhile is made anew by no command that would then disagree.
        (me.data_dir / "identity.key").rename(me.data_dir / "away.key")
        assert _error(me.run("send", "hello"))["reason"] == "KEY_FILE_INVALID"
        (me.data_dir / "away.key").replace(me.data_dir / "identity.key")
        before = me.record("status")["hub"]["key"]
        key = change_key(world)
        assert me.record("hub", "trust", "--key", key)["pinned_before"] == before
        assert me.record("status")["hub"]["state"] == "linked"
    assert me.ok("repair").strip() == "nothing to repair"
    assert sorted(one["conversation"] for one in me.records("list")) == sorted([mine, theirs])


def _backup_of(terminal: Terminal) -> str:
    path = terminal.data_dir / "theirs"
    terminal.ok("key", "backup", str(path))
    return str(path)
