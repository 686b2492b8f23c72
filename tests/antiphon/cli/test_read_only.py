"""A data folder that can't be written is read all the same."""

import json
import shutil
from pathlib import Path

import pytest

from replica.io.store.store import Store
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.processes import environment
from tests.support.forked_program import PROGRAMS, ForkedProgram


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_a_folder_that_can_not_be_written_is_read(
    world: World, me: Terminal, tmp_path: Path, is_killed: bool
) -> None:
    conversation = me.record("new")["conversation"]
    me.ok("send", "a message to read")
    replica = tmp_path / "replica"
    if is_killed:
        # The files of a process that ended without closing its store: part is in the WAL.
        async def copy() -> None:
            async with await Store.open(me.store_path) as store:
                await store.put_meta("written", b"into the WAL")
                shutil.copytree(me.data_dir, replica)

        world.background.run(copy())
        assert replica.joinpath("log", "log.db-wal").stat().st_size
    else:
        shutil.copytree(me.data_dir, replica)

    check(replica, conversation)


@pytest.mark.parametrize("part", ["log", "log/log.db"])
def test_a_folder_of_which_a_part_can_not_be_written_is_read(
    me: Terminal, tmp_path: Path, part: str
) -> None:
    conversation = me.record("new")["conversation"]
    me.ok("send", "a message to read")
    replica = tmp_path / "replica"
    shutil.copytree(me.data_dir, replica)
    check(replica, conversation, part)


def check(replica: Path, conversation: str, *parts: str) -> None:
    """Run commands on a folder of which these parts, or all, can't be written."""
    reading = [["log"], ["list"], ["status"], ["verify", conversation]]
    writing = [["send", "--no-request", "x"], ["repair"], ["title", "T"]]
    commands = [*reading, *writing]
    argv = ["tests.antiphon.cli.read_only", str(replica), *parts]
    variables = {**environment(replica.parent), "ANTIPHON_HUB": "127.0.0.1:1"}
    with ForkedProgram(PROGRAMS, argv, variables) as process:
        shown, said = process.communicate(json.dumps(commands))
        assert process.wait() == 0, said
    done = json.loads(shown)
    read, refused = done[: len(reading)], done[len(reading) :]
    assert [code for code, _, _ in read] == [0, 0, 0, 0], read
    assert "a message to read" in read[0][1]
    assert [code for code, _, _ in refused] == [1] * len(writing)
    assert all("STORE_READ_ONLY" in errors for _, _, errors in refused), refused
