"""`send` says the true reason why the hub does not hold an entry yet."""

import threading

import pytest

from replica.io import rpc
from tests.antiphon.cli.conftest import Terminal, World
from tests.support.files import full_disk

DAY_MS = 86_400_000


def test_a_hub_that_is_away_is_said_to_be_away(world: World, me: Terminal) -> None:
    me.ok("new")
    world.stop_host()
    world.stop_hub()
    assert "offline: 1 entry will be sent" in me.run("send", "--no-request", "x").stderr


def test_a_full_hub_is_not_said_to_be_offline(world: World, me: Terminal) -> None:
    me.ok("new")
    assert world.hub is not None
    disk = full_disk(world.hub.driver.store)
    world.background.run(disk.__aenter__())
    try:
        result = me.run("send", "--no-request", "x" * 20_000)
    finally:
        world.background.run(disk.__aexit__(None, None, None))
    assert result.exit_code == 0
    assert "STORE_FULL" in result.stderr
    assert "offline" not in result.stderr
    assert me.record("status")["conversations"][0]["unsynced"] == 0  # it was sent again


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
