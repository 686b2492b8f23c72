"""`send` says the true reason why the hub does not hold an entry yet."""

import threading
from collections.abc import Iterator

import pytest

from replica.errors import AntiphonError, StoreError
from replica.io import error_of, rpc
from replica.link import Fault
from syncd.io.server import start
from tests.antiphon.cli.conftest import Terminal, World
from tests.support.files import full_disk

DAY_MS = 86_400_000


def test_a_hub_that_is_away_is_said_to_be_away(world: World, me: Terminal) -> None:
    me.ok("new")
    world.stop_host()
    world.stop_hub()
    assert "offline: 1 entry will be sent" in me.run("send", "--no-request", "x").stderr


@pytest.mark.xdist_group("doctor")  # one process imports torch
@pytest.mark.usefixtures("short_waits", "forked_models")
def test_a_full_hub_is_not_said_to_be_offline(world: World, me: Terminal) -> None:
    me.ok("new")
    assert world.hub is not None
    disk = full_disk(world.hub.driver.store)
    world.background.run(disk.__aenter__())
    try:
        result = me.run("send", "--no-request", "x" * 20_000)
        status, doctor = me.run("status"), me.run("doctor")
        (record,) = me.record("status")["conversations"]
    finally:
        world.background.run(disk.__aexit__(None, None, None))
    assert result.exit_code == 0
    assert "STORE_FULL" in result.stderr
    assert "offline" not in result.stderr
    assert "refused" in status.stdout
    assert "the hub does not take 1 entry" in status.stderr
    assert "Free disk space" in status.stderr
    assert (record["refusal"], record["unsynced"]) == ("STORE_FULL", 1)
    assert "Free disk space" in record["refusal_words"]
    assert doctor.exit_code == 1
    assert "STORE_FULL" in doctor.stdout
    (record,) = me.record("status")["conversations"]
    assert (record["refusal"], record["unsynced"]) == (None, 0)  # it was sent again


def test_entries_that_the_hub_refused_are_named_and_not_waited_for(
    world: World, me: Terminal
) -> None:
    me.ok("new")
    held = len(me.records("log", "--all"))
    world.stop_hub()
    for text in ("one", "two"):
        me.ok("send", "--no-request", text)
    config = world.hub_config.model_copy(update={"entries_max": held})
    world.hub = world.background.run(start(config))
    for command in ("log", "status"):
        said = me.run(command)
        assert said.exit_code == 0
        assert "the hub does not take 2 entries" in said.stderr, command
    assert me.record("status")["conversations"][0]["refusal"] == "QUOTA_EXCEEDED"
    checked = me.run("verify", "--hub")
    assert (checked.exit_code, "NOT_COMPARED" in checked.stderr) == (0, False), checked.stderr
    asked = me.run("send", "three", "--no-wait")
    assert (asked.exit_code, "QUOTA_EXCEEDED" in asked.stderr) == (1, True)
    assert "Go on in another conversation" in asked.stderr
    assert "will answer" not in asked.stderr
    status = me.run("status")
    assert "the hub does not take 4 entries" in status.stderr
    assert "wait" not in status.stderr  # for an answer: no host learns of the request
    assert me.record("status")["conversations"][0]["waiting"] == []
    assert me.record("new", "--no-host")["synchronized"]


@pytest.mark.usefixtures("short_waits")
def test_who_waits_for_an_answer_is_told_of_a_full_hub(world: World, me: Terminal) -> None:
    me.ok("new")
    me.ok("send", "hello")
    assert world.hub is not None
    disk = full_disk(world.hub.driver.store)
    world.background.run(disk.__aenter__())
    try:
        result = me.run("send", "x" * 20_000, "--timeout", "4")
    finally:
        world.background.run(disk.__aexit__(None, None, None))
    assert "the hub does not take it yet: the disk is full" in result.stderr
    assert (result.exit_code, "reason  STORE_FULL" in result.stderr) == (1, True)


@pytest.mark.usefixtures("short_waits")
def test_a_hub_whose_store_fails_keeps_nobody_from_writing(
    world: World, me: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    me.ok("new")
    me.ok("send", "hello")
    assert world.hub is not None
    store = world.hub.driver.store

    async def fail(*_given: object, **_named: object) -> None:
        raise StoreError(f"{me.data_dir}: input/output error")

    monkeypatch.setattr(store, "append", fail)
    for _ in range(2):
        result = me.run("send", "--no-request", "kept here")
        assert result.exit_code == 0
        assert "STORE_FAILED" in result.stderr
        assert str(me.data_dir) not in result.stderr
    assert me.ok("log").count("kept here") == 2


def kinds(base: type[AntiphonError] = AntiphonError) -> Iterator[type[AntiphonError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_whatever_reason_a_peer_states_becomes_an_error() -> None:
    """Also one of the command's own, and one with a next step for each case."""
    ours = [kind for kind in kinds() if not kind.__module__.startswith("tests")]
    for reason in {kind.reason for kind in ours}:
        assert error_of(Fault(reason, "detail", "next step")).reason == reason


def test_a_clock_that_is_off_is_named(
    world: World, me: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    me.ok("new")
    now_ms = rpc.now_ms

    def off_by_a_day() -> int:
        # The hub answers in a thread of its own; its clock is right.
        is_command = threading.current_thread() is threading.main_thread()
        return now_ms() + (DAY_MS if is_command else 0)

    monkeypatch.setattr(rpc, "now_ms", off_by_a_day)
    result = me.run("send", "--no-request", "x")
    assert "PROOF_INVALID" in result.stderr
    assert "clock" in result.stderr
    for arguments in (["clone"], ["new"]):
        refused = me.run(*arguments)
        assert (refused.exit_code, "clock" in refused.stderr) == (1, True), refused.stderr
