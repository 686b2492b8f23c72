"""A command that a kill ended half way is completed by the same command, and none is done twice."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import antiphon.cli.commands.invite
from antiphon.cli.common.session import Session
from replica.ids import ConversationId
from replica.io import saved_hub
from replica.io.driver.replica import Replica
from replica.io.files.keys import load_or_create
from replica.refusals import StoreFull
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.processes import environment

KILLED_BY_ITS_FIRST_WRITE = """
import resource, signal
from antiphon.cli.entry import main
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
main()
"""


def test_a_deletion_that_ended_once_the_hub_had_deleted_is_completed(
    world: World, me: Terminal
) -> None:
    conversation = me.record("new")["conversation"]
    me.ok("invite", "bob")
    world.background.run(_delete_at_hub(me, world.address, conversation))
    assert me.refused("send", "hello", "--to", conversation) == "CONVERSATION_DELETED"
    done = me.record("delete", conversation, "--hub", "--yes")
    assert (done["deleted"], done["entries_at_hub"]) == (True, 0)
    assert me.records("list") == []
    assert [one["state"] for one in me.records("invitations")] == ["revoked"]


def test_a_backup_of_a_key_that_a_kill_ended_has_no_name(
    world: World, me: Terminal, tmp_path: Path
) -> None:
    me.ok("key", "show")
    backup = tmp_path / "key.pem"
    given = environment(world.folder / "killed") | {
        "ANTIPHON_DATA_DIR": str(me.data_dir), "ANTIPHON_PASSPHRASE": "a passphrase",
    }  # fmt: skip
    argv = [sys.executable, "-c", KILLED_BY_ITS_FIRST_WRITE, "key", "backup", str(backup)]
    killed = subprocess.run(argv, env=given, check=False)
    assert killed.returncode == -signal.SIGXFSZ
    assert not backup.exists()
    me.ok("key", "backup", str(backup))
    world.replica("other").ok("key", "restore", str(backup))


@pytest.mark.parametrize(("is_asked", "step"), [(True, "switch"), (False, "fork --at")])
def test_what_is_written_is_no_error_where_the_disk_is_full_right_behind_it(
    me: Terminal, monkeypatch: pytest.MonkeyPatch, *, is_asked: bool, step: str
) -> None:
    async def full(*_given: object) -> None:
        raise StoreFull

    me.ok("new")
    me.ok("send", "first")
    (first,) = [one["id"] for one in me.records("log") if one["kind"] == "message"]
    me.ok("send", "second")
    with monkeypatch.context() as patched:
        patched.setattr(Session, "choose_next", full)
        options = [] if is_asked else ["--no-request"]
        said = me.run("send", "--at", first, *options, "beside it")
    assert (said.exit_code, "STORE_FULL" in said.stderr) == (0, True), said.stderr
    command = said.stderr.split(f"antiphon {step} ")[1].split()
    me.ok(*step.split(), *command[:2])
    me.ok("send", "behind that")
    shown = me.ok("log")
    assert ("beside it" in shown, "behind that" in shown, "second" in shown) == (True, True, False)


def test_a_join_that_ended_before_its_conversation_came_stays_at_its_hub(
    world: World, me: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_given: object) -> None:
        raise StoreFull

    bob = world.replica("bob")
    me.ok("new")
    code = me.record("invite", "bob")["code"]
    assert bob.refused("join", code, "--no-wait") == "JOIN_PENDING"
    me.ok("status")
    with monkeypatch.context() as patched:
        patched.setattr(antiphon.cli.commands.invite, "fetch", full)
        assert bob.refused("join", code) == "STORE_FULL"
    assert saved_hub(bob.data_dir) == world.address
    bob.ok("join", code)


async def _delete_at_hub(terminal: Terminal, address: str, conversation: str) -> None:
    """Do the first half of `antiphon delete --hub`."""
    key = load_or_create(terminal.data_dir / "identity.key")
    async with Replica.open(terminal.store_path, key, address) as replica:
        await replica.calls().delete(ConversationId(bytes.fromhex(conversation)))
