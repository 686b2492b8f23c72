"""What a hub refused for good is known while it is away, also to a later command."""

from collections.abc import Callable

import pytest

from syncd.io.server import start
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.test_two_members import Gate, gate, pair

__all__ = ["gate"]


def delete(ada: Terminal, _bob: Terminal) -> None:
    ada.ok("delete", "--yes", "--hub")


def remove(ada: Terminal, bob: Terminal) -> None:
    ada.ok("members", "remove", bob.record("key", "show")["key"], "--yes")


@pytest.mark.parametrize(
    ("end", "reason"), [(delete, "CONVERSATION_DELETED"), (remove, "KEY_REMOVED")]
)
def test_what_ended_at_the_hub_has_ended_while_the_hub_is_away(
    gate: Gate, end: Callable[[Terminal, Terminal], None], reason: str
) -> None:
    ada, bob = pair(gate.world)
    bob.ok("send", "hello", "--no-wait")
    gate.wait()
    assert "answering you" in bob.run("status").stderr
    end(ada, bob)
    assert bob.refused("send", "is it there?") == reason  # the hub says it
    gate.world.stop_hub()
    for command in (("send", "and now?"), ("cancel",), ("title", "New")):
        assert bob.refused(*command) == reason
    status = bob.record("status")
    (one,) = status["conversations"]
    assert (status["hub"]["state"], one["refusal"]) == ("away", reason)
    shown = bob.run("status").stderr
    assert "answering" not in shown
    assert "will be sent" not in shown
    for command in ("log", "chat"):  # the copy is read on
        read = bob.run(command, typed="/log\n")
        assert "showing" in read.stderr
        assert "hello" in read.stdout


def test_a_hub_that_lets_a_key_begin_nothing_tells_it_of_no_removal(world: World) -> None:
    (host,) = world.hub_config.host_keys
    world.creators = (host,)
    world.stop_hub()
    world.start_hub()
    ada = world.replica()
    for command in (("new", "--host", host), ("send", "hello")):
        assert ada.refused(*command) == "CREATE_FORBIDDEN"
    (one,) = ada.record("status")["conversations"]
    assert one["refusal"] == "CREATE_FORBIDDEN"


def test_a_removed_key_is_told_so_where_it_may_begin_nothing(world: World) -> None:
    ada, bob = pair(world)
    world.creators = (ada.record("key", "show")["key"],)
    world.stop_hub()
    world.start_hub()
    remove(ada, bob)
    assert bob.refused("send", "is it there?") == "KEY_REMOVED"


def test_a_hub_with_another_key_is_asked_itself(world: World) -> None:
    ada, bob = pair(world)
    remove(ada, bob)
    assert bob.refused("send", "is it there?") == "KEY_REMOVED"
    world.stop_host()
    world.stop_hub()
    (world.folder / "hub").rename(world.folder / "lost")
    world.start_hub()
    bob.ok("hub", "trust", "--yes")
    bob.ok("send", "hello", "--no-wait")  # the new hub knows of no removal
    world.stop_hub()
    assert "will be sent" in bob.run("send", "hello", "--no-wait").stderr


def test_a_chat_says_as_status_does_that_what_was_written_offline_is_refused(
    world: World, me: Terminal
) -> None:
    """It said "synchronized"."""
    world.stop_host()
    world.stop_hub()
    me.ok("new", "--host", world.hub_config.host_keys[0])
    for _ in range(2):
        me.ok("send", "--no-request", "offline")
    config = world.hub_config.model_copy(update={"entries_max": 3})
    world.hub = world.background.run(start(config))
    world.address = world.hub.address
    (one,) = me.record("status")["conversations"]
    assert one["refusal"] == "QUOTA_EXCEEDED"
    shown = me.run("chat", typed="/status\n").stderr
    assert "refused [QUOTA_EXCEEDED] · 4 entries · 1 not at the hub yet" in shown
