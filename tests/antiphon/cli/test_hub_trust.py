"""`antiphon hub trust`: a hub whose key changed, or whose pin is damaged."""

import shutil

import pytest

from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.pty_terminal import CTRL_D
from tests.antiphon.cli.test_chat_terminal import chat
from tests.support.files import query


def change_key(world: World) -> str:
    """Start the hub again with another key and all else as it was; return the key."""
    world.stop_host()
    world.stop_hub()
    (world.folder / "hub" / "identity.key").unlink()
    world.start_hub()
    assert world.hub is not None
    return world.hub.key.hex()


def hub_state(terminal: Terminal) -> str:
    state: str = terminal.record("status")["hub"]["state"]
    return state


def test_a_hub_with_another_key_is_trusted_on_request_alone(world: World, me: Terminal) -> None:
    me.ok("new")
    before = me.record("status")["hub"]["key"]
    key = change_key(world)
    assert hub_state(me) == "away"
    assert "antiphon hub trust" in me.run("status").stderr
    assert me.refused("clone") == "PEER_IDENTITY_CHANGED"
    assert "antiphon hub trust" in me.run("clone").stderr
    assert me.refused("hub", "trust") == "NOT_CONFIRMED"  # no terminal to ask
    assert me.refused("hub", "trust", "--key", before) == "PEER_IDENTITY_CHANGED"
    assert hub_state(me) == "away"
    record = me.record("hub", "trust", "--key", key)
    assert (record["key"], record["pinned_before"]) == (key, before)
    assert hub_state(me) == "linked"
    assert "as before" in me.ok("hub", "trust", "--yes")


def test_a_replica_without_a_conversation_is_told_why_it_is_not_linked(
    world: World, me: Terminal
) -> None:
    """It was told to begin one, which no hub of another key takes."""
    assert "no conversation yet; next: antiphon new" in me.run("status").stderr
    change_key(world)
    said = me.run("status")
    assert "PEER_IDENTITY_CHANGED" in said.stdout
    assert "no conversation yet" not in said.stderr
    assert "antiphon hub trust" in said.stderr


def test_a_damaged_pin_is_refused_and_mended(world: World, me: Terminal) -> None:
    me.ok("new")
    query(me.store_path, "UPDATE meta SET value = zeroblob(32) WHERE key LIKE 'hub key %'")
    assert me.refused("clone") == "PIN_DAMAGED"
    me.ok("list")
    assert hub_state(me) == "away"
    me.ok("hub", "trust", "--yes")
    assert hub_state(me) == "linked"


def test_a_hub_that_lost_everything_is_filled_again(world: World, me: Terminal) -> None:
    conversation = me.record("new")["conversation"]
    me.ok("send", "before")
    world.stop_host()
    world.stop_hub()
    shutil.rmtree(world.folder / "hub")
    world.start_hub()
    me.ok("hub", "trust", "--yes")
    (status,) = me.record("status", conversation)["conversations"]
    assert (status["state"], status["unsynced"]) == ("synchronized", 0)


def test_a_chat_says_why_the_hub_with_another_key_is_not_linked(world: World, me: Terminal) -> None:
    me.ok("new")
    change_key(world)
    with chat(world, me) as terminal:
        terminal.expect_screen("PEER_IDENTITY_CHANGED")
        assert "the hub is away" not in terminal.screen.text
        assert terminal.leave(CTRL_D) == 0


def test_a_key_that_is_gone_is_made_anew_by_no_command(
    world: World, me: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_PASSPHRASE", "a long one")
    backup, path = world.folder / "backup", me.data_dir / "identity.key"
    conversation = me.record("new")["conversation"]
    me.ok("send", "hello")
    me.ok("key", "backup", str(backup))
    path.unlink()
    for command in (["new"], ["send", "again"], ["key", "show"], ["hub", "trust", "--yes"]):
        assert me.refused(*command) == "KEY_FILE_INVALID"
    # What was written is read all the same.
    shown = me.run("log")
    assert "hello" in shown.stdout
    assert "antiphon key restore FILE" in shown.stderr
    shown = me.run("status")
    assert shown.exit_code == 0
    assert "[KEY_FILE_INVALID]" in shown.stdout
    assert "antiphon key restore FILE" in shown.stderr
    assert "is gone" in me.record("status")["hub"]["error"]
    assert [one["roles"] for one in me.records("members", "list")]
    me.ok("export", conversation, str(world.folder / "bundle"))
    assert not path.exists()
    me.ok("key", "restore", str(backup))
    me.ok("send", "again")
