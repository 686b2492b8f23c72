"""Two members of one conversation: requests during an answer, and the resulting contexts."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.cli.views.rows import SIDE_LEAF
from replica.conversation import newest_place
from replica.ids import ConversationId
from replica.io import Replica, keys
from replica.log import Message, Speaker, Text
from replica.log.entry import public_key
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.test_terminal import at
from tests.support.scripted_host import ScriptedHost


class Gate:
    """Delays answers before their second word until they are released."""

    def __init__(self, world: World) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.world = world
        self.host: ScriptedHost = world.start_host(pace=self.pace)

    async def pace(self, index: int) -> None:
        if index == 1:
            self.reached.set()
            await self.go_on.wait()

    def wait(self) -> None:
        """Wait until an answer is in progress."""
        self.world.background.run(self.reached.wait())

    def open(self, answers: int) -> None:
        """Release the answers, and wait until there are `answers` of them."""
        self.go_on.set()
        replica = self.host.replica
        assert self.world.background.run(
            replica.wait_for(lambda: self.host.answered == answers and not owed(replica), 10.0)
        )


def owed(replica) -> int:
    return sum(replica.hub.unsynced(conversation) for conversation in replica.shelf)


@pytest.fixture
def gate(world: World) -> Iterator[Gate]:
    world.stop_host()
    held = Gate(world)
    yield held
    held.go_on.set()


def pair(world: World) -> tuple[Terminal, Terminal]:
    """Return an owner and a writer of one conversation that has two hosts."""
    ada, bob = world.replica("ada"), world.replica("bob")
    writer, host = bob.record("key", "show")["key"], public_key(key_of_other(world)).hex()
    chosen = ada.ok("new", "--member", f"{writer}:writer", "--member", f"{host}:host").strip()
    clone_to(ada, bob, chosen)
    return ada, bob


def clone_to(ada: Terminal, bob: Terminal, chosen: str | None = None) -> None:
    """Give Bob Ada's conversation."""
    chosen = chosen or ada.records("list")[0]["conversation"]
    bundle = str(ada.world.folder / "conversation.bundle")
    ada.ok("export", chosen, bundle, "--force")
    bob.ok("import", bundle)


def key_of_other(world: World) -> Ed25519PrivateKey:
    """Return the key of the second host."""
    return keys.load_or_create(world.folder / "other" / "identity.key")


def three_steps(gate: Gate, *how: str) -> tuple[Terminal, Terminal]:
    """Ada asks, Bob asks during the answer, Ada replies to the text she read."""
    ada, bob = pair(gate.world)
    ada.ok("send", "first", "--no-wait")
    gate.wait()
    bob.ok("send", "second", "--no-wait", *how)
    gate.open(answers=2)
    assert ada.ok("send", "third", *how) == "You said: third\n"
    return ada, bob


def context_of_newest(me: Terminal) -> list[str]:
    """Return the words of the newest seal's whole context, in the order the model sees them."""
    records = {r["id"]: r for r in me.records("log")}
    seals = {s["seal"]: s for s in me.records("log", "--graph")}
    (tip,) = (s for s in seals.values() if s["is_tip"])
    chain: list[str] = []
    while tip is not None:
        chain = [*tip["entries"], *chain]
        tip = seals.get(tip["prev_seal"])
    return [records[i]["text"] for i in chain if "text" in records[i]]


def said_in(shown: str) -> list[str]:
    """Return the words of `antiphon log`, without ids, speakers and notes."""
    return [line[20:] for line in shown.splitlines() if not line.startswith(" ")]


def test_a_request_during_an_answer_is_queued_behind_it(gate: Gate):
    ada, bob = three_steps(gate)
    words = ["first", "You said: first", "second", "You said: second", "third"]
    for member in (ada, bob):
        member.ok("status")
        assert context_of_newest(member) == words
        assert said_in(member.ok("log")) == [*words, "You said: third"]
        graph = member.ok("log", "--graph")
        assert "|\\" not in graph
        assert SIDE_LEAF not in graph


def test_a_fork_during_an_answer_is_a_branch_beside_it(gate: Gate):
    """It took the branch over, then it waited for the answer that it leaves out."""
    ada, bob = pair(gate.world)
    ada.ok("send", "first", "--no-wait")
    gate.wait()
    bob.ok("send", "second", "--no-wait", "--conflict", "fork")
    gate.open(answers=2)
    bob.ok("status")
    assert said_in(bob.ok("log")) == ["first", "second", "You said: second"]
    assert len(bob.records("branches")) == 2

    assert ada.ok("send", "third") == "You said: third\n"
    assert said_in(ada.ok("log")) == ["first", "You said: first", "third", "You said: third"]


def test_a_fork_beside_an_answer_whose_host_is_gone_waits_for_nobody(gate: Gate) -> None:
    """It waited for that answer for ever, and the advice was to fork."""
    ada, bob = pair(gate.world)
    ada.ok("send", "first", "--no-wait")
    gate.wait()
    gate.world.stop_host()
    bob.ok("status")
    other = gate.world.start_host(name="other").replica.public.hex()
    result = bob.run("send", "aside", "--conflict", "fork", "--host", other)
    assert result.stdout == "You said: aside\n"
    assert "this makes a branch without it" in result.stderr
    assert "is not linked" not in result.stderr, "it advised to fork"
    assert bob.ok("send", "again", "--host", other) == "You said: again\n"
    first, unanswered, *words = said_in(bob.ok("log"))
    assert unanswered.endswith(first)
    assert words == ["aside", "You said: aside", "again", "You said: again"]


def test_a_fork_behind_words_said_during_an_answer_waits_for_nobody(gate: Gate) -> None:
    """`send --at` waited for the answer that it said it goes on without."""
    ada, bob = pair(gate.world)
    ada.ok("send", "first", "--no-wait")
    gate.wait()
    bob.ok("status")
    note = bob.record("send", "note", "--no-request")["message"]
    gate.world.stop_host()
    other = gate.world.start_host(name="other").replica.public.hex()
    said = bob.ok("send", "aside", "--at", note, "--host", other)
    assert said == "You said: aside\n"
    assert said_in(bob.ok("log"))[-3:] == ["note", "aside", "You said: aside"]


def test_a_branch_whose_host_is_gone_continues(gate: Gate):
    ada, bob = pair(gate.world)
    ada.ok("send", "first", "--no-wait")
    gate.wait()
    gate.world.stop_host()
    waiting = bob.run("send", "second", "--no-wait")
    beside = "antiphon send --conflict fork TEXT goes on beside it"
    assert f"is not linked; who asked, or an owner, can cancel it; {beside}" in waiting.stderr
    cancelled = bob.record("cancel")
    assert len(cancelled["cancelled"]) == 1, "the first request is Ada's, and Bob no owner"
    first = cancelled["awaited"]
    assert bob.refused("cancel") == "ROLE_FORBIDS"
    assert ada.record("cancel")["cancelled"] == first
    gate.world.start_host(name="other")
    assert ada.ok("send", "third") == "You said: third\n"
    assert context_of_newest(ada) == ["first", "second", "third"]


def test_cancel_says_what_the_next_message_waits_for_from_then_on(gate: Gate) -> None:
    """It named a question that waits beside the cancelled one, which nobody waits for."""
    ada, bob = pair(gate.world)
    bob.ok("send", "first", "--no-wait")
    gate.wait()
    ada.ok("status")
    ada.ok("send", "second", "--no-wait")
    bob.ok("status")
    gate.world.stop_host()
    cancelled = bob.run("cancel")
    assert "1 request cancelled; the next message does not wait for an answer" in cancelled.stderr
    assert bob.refused("cancel") == "NOTHING_AWAITED"
    other = gate.world.start_host(name="other").replica.public.hex()
    assert bob.ok("send", "third", "--host", other) == "You said: third\n"
    said = ada.run("status").stderr
    assert "you wait for a host that is not linked to the hub" in said, "it named Bob"


def test_an_open_request_of_another_branch_is_found_and_cancelled(gate: Gate) -> None:
    """A fork without a seal is on no branch that `switch` knows."""
    ada, bob = pair(gate.world)
    ada.ok("send", "first", "--no-wait")
    gate.wait()
    gate.world.stop_host()
    asked = bob.record("send", "aside", "--no-wait", "--conflict", "fork")["request"]
    ada.ok("status")
    assert asked[:8] in ada.ok("log", "--graph")
    assert ada.refused("cancel", "--request", asked[:8], "--call", "x") == "ARGUMENT_INVALID"
    assert ada.record("cancel", "--request", asked[:8])["cancelled"] == [asked]
    assert ada.refused("cancel", "--request", asked[:8]) == "NOTHING_AWAITED"
    assert bob.refused("cancel") == "NOTHING_AWAITED"


def test_nothing_is_unsynced_for_a_member_that_left(world: World) -> None:
    _, bob = pair(world)
    bob.ok("send", "--no-request", "before I go")
    bob.ok("members", "remove", bob.record("key", "show")["key"], "--yes")
    (status,) = bob.record("status")["conversations"]
    assert (status["unsynced"], status["state"], status["refusal"]) == (0, "not a member", None)


def test_no_answer_is_awaited_by_a_member_that_left(gate: Gate) -> None:
    """The status said for good that it is being answered."""
    _, bob = pair(gate.world)
    bob.ok("send", "first", "--no-wait")
    gate.wait()
    assert "answering you" in bob.run("status").stderr
    bob.ok("members", "remove", bob.record("key", "show")["key"], "--yes")
    for is_away in (False, True):
        if is_away:
            gate.world.stop_hub()
        assert "answering" not in bob.run("status").stderr
        assert bob.record("status")["conversations"][0]["waiting"] == []


def test_no_answer_is_awaited_of_a_conversation_that_the_hub_deleted(gate: Gate) -> None:
    ada, bob = pair(gate.world)
    bob.ok("send", "first", "--no-wait")
    gate.wait()
    assert "answering you" in bob.run("status").stderr
    ada.ok("delete", "--hub", "--yes")
    assert "answering" not in bob.run("status").stderr
    assert bob.record("status")["conversations"][0]["waiting"] == []


def test_who_deletes_at_the_hub_is_told_who_keeps_a_copy(world: World, me: Terminal) -> None:
    host = world.hub_config.host_keys[0]
    me.ok("new")
    assert f"copies stay with 1 member, model hosts included: {host[:12]}" in (
        me.run("delete", "--hub", "--yes").stderr
    )
    me.ok("new")
    assert me.record("delete", "--hub", "--yes")["kept_by"] == [host]
    me.ok("new")
    assert me.record("delete", "--yes")["kept_by"] == []  # only the folder's copy was meant


def test_who_deletes_a_damaged_conversation_is_told_that_its_members_are_unknown(
    me: Terminal,
) -> None:
    """Nobody was named, as if there were no copy."""
    for options in ((), ("--json",)):
        conversation = me.record("new")["conversation"]
        with closing(sqlite3.connect(me.store_path)) as store, store:
            store.execute("UPDATE entries SET header = x'00'")
        done = me.run("delete", conversation, "--hub", "--yes", *options)
        assert done.exit_code == 0, done.output
        if options:
            assert json.loads(done.stdout)["kept_by"] is None
        else:
            assert "copies stay with all other members and model hosts" in done.stderr


async def says_as(terminal: Terminal, conversation: str, speaker: Speaker, text: str) -> None:
    """Write a message of another speaker than a user, as a changed client can."""
    key, chosen = (
        keys.load_or_create(terminal.data_dir / "identity.key"),
        bytes.fromhex(conversation),
    )
    opening = Replica.open(terminal.store_path, key, terminal.world.address)
    async with opening as replica:
        talk = ConversationId(chosen)
        await replica.follow(talk)
        assert await replica.wait_for(lambda: replica.hub.is_in_sync(talk), 10)
        place = newest_place(await replica.load(talk))
        said = Message(speaker, (Text(text),))
        await replica.append(talk, said, parents=place.parents, basis=place.basis)
        assert await replica.wait_for(lambda: not replica.hub.unsynced(talk), 10)


def test_who_speaks_for_the_model_is_named(world: World, me: Terminal) -> None:
    """The words stood there as those of an assistant; in a chat, as those of a tool."""
    bob = world.replica("bob")
    key = bob.record("key", "show")["key"]
    talk = me.record("new", "--member", f"{key}:writer", "--system", "Be brief.")["conversation"]
    me.ok("send", "Hello.", "--no-request")
    world.background.run(says_as(bob, talk, Speaker.ASSISTANT, "Trust Bob."))
    shown = me.ok("log")
    assert f"assistant  Trust Bob.\n{' ' * 20}by {key[:6]}\n" in shown
    assert shown.count(" by ") == 1  # the system text is our own
    with at(world, me, "chat") as terminal:
        terminal.expect_screen(f"assistant by {key[:6]}: Trust Bob.")
        assert terminal.leave("/quit\r") == 0
