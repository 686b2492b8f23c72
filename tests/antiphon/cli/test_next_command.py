"""The commands that are printed for the user can be copied into a shell as they are."""

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import Result

from antiphon.cli.common.config import load_settings
from antiphon.cli.common.next_command import next_command
from antiphon.cli.common.session import Session
from replica.conversation import JoinPending
from replica.io import saved_hub
from tests.antiphon.cli.conftest import Terminal, World


def copied(result: Result) -> list[str]:
    """Return the words of the command that a run printed last."""
    assert result.exit_code == 0, result.output
    return shlex.split(result.stderr.rpartition("next: antiphon ")[2])


def test_a_printed_command_has_the_folder_and_the_hub_of_the_one_before(
    world: World, me: Terminal, tmp_path: Path
) -> None:
    folder, hub = str(tmp_path / "my folder"), world.address.replace("127.0.0.1", "localhost")
    given = ("--data-dir", folder, "--hub-address", hub)
    words = copied(me.run("new", "--system", "Hello.", *given))
    assert words == ["chat", *given]
    assert "hi" in me.run(*words, typed="hi\n").output
    send, _, chat = me.run("fork", *given).stderr.partition(", or ")
    assert shlex.split(send) == ["next:", "antiphon", "send", "TEXT", *given]
    assert shlex.split(chat) == ["antiphon", "chat", *given]
    # One given before the command's name, and a path with a space.
    bundle = str(tmp_path / "my bundle")
    conversation = me.record("list", *given)["conversation"]
    check = copied(me.run("--data-dir", folder, "export", conversation, bundle))
    assert check == ["verify", "--bundle", bundle, "--data-dir", folder]
    me.ok(*check)
    assert not me.data_dir.exists()


def test_notes_of_send_name_commands_for_its_folder(world: World, me: Terminal) -> None:
    folder = ("--data-dir", str(me.data_dir.parent / "my folder"))
    me.ok("new", *folder)
    note = me.run("send", "one two three", "--max-tokens", "2", *folder).stderr
    step = note.partition(" tokens · antiphon ")[2].partition(" goes on")[0]
    assert shlex.split(step) == ["send", "--continue", *folder]
    me.ok(*shlex.split(step))
    world.stop_host()
    me.ok("send", "anybody?", "--no-wait", *folder)
    note = me.run("send", "and now?", "--no-wait", *folder).stderr
    step = note.partition("is not linked; antiphon ")[2].partition(" ends the wait")[0]
    assert shlex.split(step) == ["cancel", *folder]
    me.ok(*shlex.split(step))


def test_behind_a_join_the_hub_is_that_of_the_invitation(
    world: World, me: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me.ok("new")
    code = me.record("invite", "bob")["code"]
    folder = tmp_path / "bob's"
    away = ("--data-dir", str(folder), "--hub-address", "127.0.0.1:1")
    me.ok("status")
    assert me.run("join", code, "--no-wait", *away).exit_code == 1
    me.ok("status")  # admits bob
    # ANTIPHON_HUB is the hub of the code here, so that no option is needed.
    assert copied(me.run("join", code, *away)) == ["chat", "--data-dir", str(folder)]
    assert saved_hub(folder) == world.address
    monkeypatch.setenv("ANTIPHON_HUB", "127.0.0.1:1")
    settings = load_settings({"data_dir": str(folder), "hub": world.address})
    words = ["antiphon", "chat", "--data-dir", str(folder)]
    assert shlex.split(next_command(settings, "chat")) == words  # it is the hub of the folder


def test_a_join_that_waits_goes_on_in_its_folder(tmp_path: Path) -> None:
    """It named another folder, whose key the inviter takes for that of a stranger."""
    said: list[str] = []
    settings = load_settings({"data_dir": str(tmp_path / "a b")})
    session: Any = SimpleNamespace(settings=settings, out=SimpleNamespace(note=said.append))
    Session.say_waiting(session, JoinPending())
    assert f"antiphon join CODE --data-dir '{tmp_path}/a b' goes on" in said[0]


def test_only_what_the_next_command_would_not_find_is_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTIPHON_HUB", raising=False)
    monkeypatch.setenv("ANTIPHON_DATA_DIR", str(tmp_path))
    file = tmp_path / "a file.toml"
    file.write_text('hub = "127.0.0.1:2"\n')
    monkeypatch.setenv("ANTIPHON_CONFIG", str(file))
    assert next_command(load_settings({}), "chat") == "antiphon chat"
    assert next_command(load_settings({"data_dir": str(tmp_path)}), "chat") == "antiphon chat"
    up = next_command(load_settings({}), "new", hub="127.0.0.1:3")
    assert up == "antiphon new --hub-address 127.0.0.1:3"
    # A relative folder is another one in another terminal.
    monkeypatch.chdir(tmp_path)
    below = next_command(load_settings({"data_dir": "below"}), "chat")
    assert below == f"antiphon chat --data-dir {tmp_path / 'below'}"
    assert next_command(load_settings({"data_dir": "."}), "chat") == "antiphon chat"
    monkeypatch.setenv("ANTIPHON_DATA_DIR", "below")
    assert next_command(load_settings({}), "chat") == below
    monkeypatch.setenv("ANTIPHON_DATA_DIR", str(tmp_path))
    # A file that was named is named again, before the command.
    named = next_command(load_settings({}, file), "title", "TITLE")
    assert named == f"antiphon --config '{file}' title TITLE"
    # Settings that the flags replaced need not be valid.
    monkeypatch.setenv("ANTIPHON_HUB", "no address")
    replaced = next_command(load_settings({"hub": "127.0.0.1:4"}), "chat")
    assert replaced == f"antiphon chat --data-dir {tmp_path} --hub-address 127.0.0.1:4"
