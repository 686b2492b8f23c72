"""A replica on a full disk is read, verified and exported to another one."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from replica.io.store.store import Store
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.processes import ROOT, environment

APART = ["unshare", "--mount", "--map-root-user"]


def on_a_full_disk(replica: Path, commands: list[list[str]], room_bytes: int = 0) -> list[Any]:
    """Run commands for the replica in a folder; return their exit codes, outputs and errors.

    The disk has `room_bytes` left for them.
    """
    if subprocess.run([*APART, "mount", "-t", "tmpfs", "x", "/mnt"], check=False).returncode:
        pytest.skip("this user may mount nothing")
    argv = [*APART, sys.executable, "-m", "tests.antiphon.cli.full_disk", str(replica)]
    argv.append(str(room_bytes))
    process = subprocess.run(
        argv, cwd=ROOT, input=json.dumps(commands),
        env={**environment(replica.parent), "ANTIPHON_HUB": "127.0.0.1:1"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    done: list[Any] = json.loads(process.stdout)
    return done


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_a_replica_on_a_full_disk_is_read_and_exported(
    world: World, me: Terminal, tmp_path: Path, is_killed: bool
) -> None:
    conversation = me.record("new")["conversation"]
    me.ok("send", "a message to read")
    replica, bundle = tmp_path / "replica", tmp_path / "talk.bundle"
    if is_killed:
        # The files of a process that ended without closing its store: part is in the WAL.
        async def copy() -> None:
            async with await Store.open(me.store_path) as store:
                await store.put_meta("written", b"into the WAL")
                shutil.copytree(me.data_dir, replica)

        world.background.run(copy())
    else:
        shutil.copytree(me.data_dir, replica)
    reading = [["log"], ["list"], ["status"], ["verify"], ["export", conversation, str(bundle)]]
    *read, (code, _, errors) = on_a_full_disk(replica, [*reading, ["send", "--no-request", "x"]])
    assert [code for code, _, _ in read] == [0] * 5, read
    assert "a message to read" in read[0][1]
    assert "conversation yet" not in read[1][2]
    assert (code, "STORE_FULL" in errors) == (1, True), errors
    me.ok("verify", "--bundle", str(bundle))


def test_a_clone_that_finds_no_room_names_the_full_disk(
    world: World, me: Terminal, tmp_path: Path
) -> None:
    me.record("new")
    for _ in range(4):
        me.ok("send", "--no-request", "word " * 20_000)
    replica = tmp_path / "replica"
    shutil.copytree(me.data_dir, replica)
    shutil.rmtree(replica / me.store_path.parent.name)
    clone = ["clone", "--hub-address", world.address]
    first, (code, shown, _) = on_a_full_disk(replica, [clone, [*clone, "--json"]], 400_000)
    assert (first[0], "STORE_FULL" in first[2], "Free disk space" in first[2]) == (1, True, True)
    record = json.loads(shown)
    assert (code, record["refusal"], record["synchronized"]) == (1, "STORE_FULL", False)
    assert 0 <= record["new"] <= record["entries"] < 6
