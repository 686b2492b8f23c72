"""`antiphon clone`: a replica that lost its store gets its conversations back."""

import itertools
import shutil

from antiphon.conformance.io.member import Member as Caller
from replica.ids import PublicKey
from replica.log import Grant, Member, Role
from tests.antiphon.cli.conftest import Terminal, World
from tests.support.writers import Writer


def lose_store(terminal: Terminal) -> None:
    """Remove everything but the key."""
    shutil.rmtree(terminal.store_path.parent)


def granted_by_a_stranger(world: World, to: Terminal, seed: int = 0, below: str = "g") -> str:
    """Give a key the role of a writer in a conversation whose id sorts before `below`."""
    key = PublicKey(bytes.fromhex(to.record("key", "show")["key"]))
    ground = (Writer(f"eve {seed} {number}".encode()) for number in itertools.count())
    eve, genesis = next((one, g) for one in ground if (g := one.genesis()).id.hex() < below)
    body = Member(Grant(key, Role.WRITER))
    grant = eve.write(genesis.conversation, body, parents=[genesis])

    async def push() -> None:
        async with Caller.join(world.address, eve.key) as caller:
            assert not await caller.push(genesis.conversation, [genesis, grant])

    world.background.run(push())
    return genesis.id.hex()


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


def test_a_clone_goes_on_where_its_key_wrote_last(world: World, me: Terminal) -> None:
    """A stranger who gave it a role, in a conversation whose id came first, got the next words."""
    mine = [me.record("new")["conversation"] for _ in range(2)]
    me.ok("send", "the last one", "--to", mine[0])
    granted_by_a_stranger(world, me, below=min(mine))
    lose_store(me)
    listed = [record["conversation"] for record in me.records("clone")]
    assert listed[0] not in mine
    me.ok("send", "goes on")
    assert "goes on" in me.ok("log", mine[0])


def test_a_clone_of_strangers_alone_goes_on_nowhere(world: World, me: Terminal) -> None:
    theirs = [granted_by_a_stranger(world, me, number) for number in range(2)]
    assert {record["conversation"] for record in me.records("clone")} == set(theirs)
    assert me.refused("send", "to whom?") == "ID_AMBIGUOUS"
    me.ok("clone", theirs[1])
    me.ok("send", "to the one that was named", "--no-request")
    assert "named" in me.ok("log", theirs[1])


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
