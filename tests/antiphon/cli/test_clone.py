"""`antiphon clone`: a replica that lost its store gets its conversations back."""

import shutil

from tests.antiphon.cli.conftest import Terminal, World


def lose_store(terminal: Terminal) -> None:
    """Remove everything but the key."""
    shutil.rmtree(terminal.store_path.parent)


def test_a_lost_replica_gets_all_its_conversations_back(world: World, me: Terminal) -> None:
    ids = {me.record("new")["conversation"] for _ in range(3)}
    me.ok("send", "the last one")
    digests = {record["conversation"]: record["digest"] for record in me.records("verify", "--all")}
    lose_store(me)
    assert me.records("list") == []
    records = me.records("clone")
    assert {r["conversation"] for r in records} == ids
    assert all(r["synchronized"] and r["new"] == r["entries"] > 0 for r in records)
    again = {record["conversation"]: record["digest"] for record in me.records("verify", "--all")}
    assert again == digests
    me.ok("send", "goes on")


def test_one_conversation_is_cloned_by_its_id_or_its_beginning(world: World, me: Terminal) -> None:
    first, second = (me.record("new")["conversation"] for _ in range(2))
    lose_store(me)
    assert me.record("clone", first)["entries"] > 0
    assert {record["conversation"] for record in me.records("list")} == {first}
    assert me.record("clone", second[:12])["conversation"] == second
    assert me.record("clone", second[:12])["new"] == 0


def test_a_stranger_clones_nothing(world: World, me: Terminal) -> None:
    conversation = me.record("new")["conversation"]
    other = world.replica("other")
    result = other.run("clone")
    assert result.exit_code == 1
    assert "key restore" in result.stderr
    assert "next: antiphon new, or antiphon join CODE with an owner's invitation;" in result.stderr
    assert other.refused("clone", conversation[:12]) == "ID_UNKNOWN"
    result = other.run("clone", conversation, "--json")
    assert result.exit_code == 1
    assert "CONVERSATION_NOT_FOUND" in result.stdout
    assert other.records("list") == []
    assert other.refused("clone", "zz" * 32) == "ID_UNKNOWN"
    assert "no conversation at the hub begins with dead" in other.run("clone", "dead").stderr


def test_without_a_hub_there_is_nothing_to_clone_from(world: World, me: Terminal) -> None:
    me.ok("new")
    world.stop_host()
    world.stop_hub()
    assert me.refused("clone") == "HUB_UNREACHABLE"
