"""`antiphon invite` and `join`: two replicas, one hub, and one conversation."""

import re
import shlex
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from antiphon.cli.commands.invite import invite_
from replica.conversation import decode_invitation, encode_invitation
from replica.ids import PublicKey
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.test_terminal import HeldUp, at, held_up

__all__ = ["held_up"]


@pytest.fixture
def bob(world: World) -> Terminal:
    return world.replica("bob")


def code_of(terminal: Terminal, name: str = "bob", *options: str) -> str:
    code: str = terminal.record("invite", name, *options)["code"]
    return code


def conversations_at(world: World) -> set[str]:
    """Return the conversations in the store of a hub."""
    with closing(sqlite3.connect(world.folder / "hub" / "log" / "log.db")) as store:
        return {row[0].hex() for row in store.execute("SELECT DISTINCT conversation FROM entries")}


def leaves_a_proof(terminal: Terminal, code: str) -> None:
    assert terminal.refused("join", code, "--no-wait") == "JOIN_PENDING"


def test_a_newcomer_joins_once_the_inviter_is_online(me: Terminal, bob: Terminal) -> None:
    conversation = me.record("new")["conversation"]
    code = code_of(me)
    leaves_a_proof(bob, code)
    said = me.run("status").stderr
    assert "bob has joined" in said
    assert bob.record("key", "show")["key"] in said
    joined = bob.record("join", code)
    assert (joined["conversation"], joined["role"]) == (conversation, "writer")
    assert joined["synchronized"]
    assert bob.ok("send", "hello") == "You said: hello\n"
    assert "hello" in (me.run("status").stdout and me.ok("log"))
    (record,) = me.records("invitations")
    assert (record["name"], record["state"]) == ("bob", "joined")


def test_a_reader_becomes_a_writer_by_another_invitation(me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    for role in ("reader", "writer"):
        code = code_of(me, f"bob as {role}", "--role", role)
        leaves_a_proof(bob, code)
        me.ok("status")
        assert bob.record("join", code)["role"] == role
        if role == "reader":
            refused = bob.run("send", "--no-request", "hello")
            assert refused.exit_code == 1
            assert "antiphon invite NAME" in refused.stderr
    bob.ok("send", "--no-request", "hello")
    assert "hello" in (me.run("status").stdout and me.ok("log"))


def test_the_commands_that_let_a_newcomer_in_are_those_of_the_page(
    me: Terminal, bob: Terminal
) -> None:
    me.ok("new")
    leaves_a_proof(bob, code_of(me))
    for only_reads in ("list", "members"):
        assert "bob" not in me.run(only_reads).stderr
    assert "bob has joined" in me.run("log").stderr


def test_the_help_of_invite_names_commands_that_let_a_newcomer_in(
    world: World, me: Terminal
) -> None:
    _, _, named = (invite_.__doc__ or "").partition("or when your next ")
    commands = re.findall(r"`(\w+)`", named)
    assert commands == ["status", "log", "send"]
    me.ok("new")
    for command in commands:
        leaves_a_proof(world.replica(f"for {command}"), code_of(me))
        text = ["--no-request", "Hello."] if command == "send" else []
        assert "bob has joined" in me.run(command, *text).stderr


def test_a_second_key_is_told_that_the_code_was_used(
    world: World, me: Terminal, bob: Terminal
) -> None:
    code_id = me.record("new")["conversation"]
    code = code_of(me)
    leaves_a_proof(bob, code)
    me.ok("status")
    eve = world.replica("eve")
    leaves_a_proof(eve, code)  # the hub does not tell
    said = " ".join(me.run("status").stderr.split())
    key = eve.record("key", "show")["key"][:12]
    assert f"another key {key} tried the code of bob, which was used already, and is not" in said
    assert "[INVITE_USED]" in said
    assert "bob is refused" not in said
    assert eve.refused("join", code) == "INVITE_USED"
    assert bob.record("join", code)["synchronized"]
    assert [r["name"] for r in me.records("members") if "writer" in r["roles"]] == ["bob"]
    me.ok("new")  # the steps are about the conversation of the code, and work as they are
    for step in said.partition("joined as bob, ")[2].split(", then "):
        me.ok(*shlex.split(step.partition("antiphon ")[2]))
    (removed,) = [one for one in me.records("members", code_id) if one["name"] == "bob"]
    assert removed["state"] == "removed"


def test_of_two_proofs_one_is_redeemed(world: World, me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code, eve = code_of(me), world.replica("eve")
    leaves_a_proof(bob, code)
    leaves_a_proof(eve, code)
    while not any("writer" in r["roles"] for r in me.records("members")):
        me.ok("status")  # it leaves an answer to the next command after 2 s
    codes = {one.run("join", code, "--no-wait").exit_code for one in (bob, eve)}
    assert codes == {0, 1}
    assert sum("writer" in r["roles"] for r in me.records("members")) == 1


def test_a_reader_reads(me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code = code_of(me, "bob", "--role", "reader")
    leaves_a_proof(bob, code)
    me.ok("status")
    assert bob.record("join", code)["role"] == "reader"
    assert bob.refused("send", "hello") == "ROLE_FORBIDS"


@pytest.mark.parametrize("role", ["owner", "none"])
def test_no_invitation_makes_an_owner(me: Terminal, role: str) -> None:
    me.ok("new")
    assert me.refused("invite", "bob", "--role", role) == "ARGUMENT_INVALID"


def test_only_an_owner_invites(me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code = code_of(me)
    leaves_a_proof(bob, code)
    me.ok("status")
    bob.ok("join", code)
    assert bob.refused("invite", "eve") == "ROLE_FORBIDS"


def test_a_revoked_code_lets_nobody_in(world: World, me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code = code_of(me)
    me.ok("invitations", "--revoke", "bob")
    leaves_a_proof(bob, code)  # the hub answers as for any other
    me.ok("status")
    leaves_a_proof(bob, code)
    assert [r["state"] for r in me.records("invitations")] == ["revoked"]
    assert all("writer" not in r["roles"] for r in me.records("members"))


def test_a_code_is_void_once_its_conversation_is_deleted(me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code = code_of(me)
    leaves_a_proof(bob, code)
    said = me.run("delete", "--hub", "--yes").stderr + me.run("status").stderr
    assert "INVITE_REVOKED" in said
    assert [one["state"] for one in me.records("invitations")] == ["revoked"]
    assert bob.refused("join", code) == "INVITE_REVOKED"


def test_a_code_is_read_from_a_pipe(me: Terminal, bob: Terminal) -> None:
    """Whoever lists the processes of the machine sees an argument."""
    me.ok("new")
    code = code_of(me)
    given = f"{code[:40]}\n  {code[40:]}\n"
    assert bob.run("join", "-", "--no-wait", typed=given).exit_code == 1
    assert "bob has joined" in me.run("status").stderr
    assert "joined" in bob.run("join", "-", typed=given).output
    assert bob.run("join", "-", typed="").exit_code == 1


def test_an_inviter_does_not_use_up_its_own_code(me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code = code_of(me)
    assert me.refused("join", code) == "ARGUMENT_INVALID"
    leaves_a_proof(bob, code)
    me.ok("status")
    assert bob.record("join", code)["role"] == "writer"


def test_a_wait_for_a_newcomer_ends_with_its_invitation(world: World, me: Terminal) -> None:
    me.ok("new")
    with at(world, me, "invite", "bob", "--wait") as terminal:
        terminal.expect("the code stays valid")
        me.ok("invitations", "--revoke", "bob")
        terminal.expect("the invitation of bob is revoked; nobody has joined with it")
        assert terminal.exit_code() == 1


def test_who_joins_while_an_answer_is_awaited_is_announced_on_a_line(
    world: World, me: Terminal, bob: Terminal, held_up: HeldUp
) -> None:
    code = code_of(me)
    with at(world, me, "send", "one two three") as terminal:
        terminal.expect_screen("You said:\n2 tokens")
        bob.ok("join", code)
        terminal.expect_screen("You said:\nbob has joined")
        held_up.evict()
        assert terminal.exit_code() == 0
        first, joined, _, *rest = terminal.screen.lines
        assert (first, joined[:14], rest[0]) == ("You said:", "bob has joined", " one two three")


def test_a_code_revoked_while_the_hub_is_away_is_refused_by_the_inviter(
    world: World, me: Terminal, bob: Terminal
) -> None:
    me.ok("new")
    code = code_of(me)
    world.stop_host()
    world.stop_hub()
    me.ok("invitations", "--revoke", "bob")
    world.start_hub()
    leaves_a_proof(bob, code)
    me.ok("status")
    assert bob.refused("join", code) == "INVITE_REVOKED"


def test_a_removed_member_needs_a_new_key(world: World, me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    first = code_of(me)
    leaves_a_proof(bob, first)
    me.ok("status")
    bob.ok("join", first)
    bob.ok("send", "said before")
    me.ok("members", "remove", "bob")
    assert "said before" in me.ok("log")
    assert bob.refused("send", "after", "--no-request") == "KEY_REMOVED"
    assert "said before" in bob.ok("log")
    assert "[KEY_REMOVED]" in bob.run("members").stderr  # no entry here tells of the removal
    bundle = str(world.folder / "bundle")
    me.ok("export", me.records("list")[0]["conversation"], bundle)
    bob.ok("import", bundle)
    result = bob.run("send", "after", "--no-request")  # the log says it now
    assert f"{me.record('key', 'show')['key'][:12]} removed it" in " ".join(result.stderr.split())
    second = code_of(me, "bob again")
    leaves_a_proof(bob, second)
    me.ok("status")
    result = bob.run("join", second)
    assert "KEY_REMOVED" in result.stderr
    assert "--data-dir" in result.stderr
    other = world.replica("bob with another key")
    leaves_a_proof(other, second)
    me.ok("status")
    assert other.record("join", second)["synchronized"]
    assert "after" not in me.ok("log")


def test_a_wrong_code_is_refused_here(me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code = code_of(me)
    assert bob.refused("join", code[:-1]) == "INVITE_INVALID"
    assert bob.refused("join", "antiphon1.") == "INVITE_INVALID"
    mistyped = code[:40] + ("A" if code[40] != "A" else "B") + code[41:]
    assert bob.refused("join", mistyped) == "INVITE_INVALID"
    assert decode_invitation(f" {code[:50]}\n{code[50:]} ") == decode_invitation(code)
    away = replace(decode_invitation(code), hub_address="127.0.0.1:1")
    gone = bob.run("join", encode_invitation(away))
    assert "HUB_UNREACHABLE" in gone.stderr
    assert "Ask the inviter" in gone.stderr
    other = replace(decode_invitation(code), hub_key=PublicKey(b"k" * 32))
    changed = bob.run("join", encode_invitation(other))
    assert "PEER_IDENTITY_CHANGED" in changed.stderr
    assert "Do not go on" in changed.stderr
    late = replace(decode_invitation(code), expire_time_ms=1)
    assert bob.refused("join", encode_invitation(late)) == "INVITE_EXPIRED"
    said = bob.run("join", encode_invitation(late)).stderr
    assert "by the clock of this machine, the code expired at 1970-01-01T00:00:00+00:00" in said
    assert "set the clock of this machine" in said
    assert me.refused("invite", "bob", "--at", "somewhere") == "ARGUMENT_INVALID"


@pytest.mark.parametrize("had", ["its own hub", "no hub"])
def test_a_code_of_another_hub_sends_it_nothing_else(world: World, me: Terminal, had: str) -> None:
    options = () if had == "its own hub" else ("--hub-address", "127.0.0.1:1")
    private = me.record("new", "--no-host", *options)["conversation"]
    (world.folder / "elsewhere").mkdir()
    other = World(world.folder / "elsewhere", world.background)
    other.start_hub()
    try:
        eve = other.replica("eve")
        eve.ok("new", "--no-host")
        code = code_of(eve)
        refused = me.run("join", code, "--no-wait")
        assert "ARGUMENT_INVALID" in refused.stderr
        assert f"would send it to {other.address}" in refused.stderr
        assert private not in conversations_at(other)
        # Both next steps work.
        leaves_a_proof(world.replica("another folder"), code)
        me.ok("status", "--hub-address", other.address)
        assert private in conversations_at(other)
        leaves_a_proof(me, code)
    finally:
        other.stop_hub()


def test_members_have_names_beside_the_replica(me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code = code_of(me)
    leaves_a_proof(bob, code)
    me.ok("status")
    bob.ok("join", code)
    ours = me.record("key", "show")["key"]
    by_name = {record["name"]: record for record in me.records("members")}
    assert by_name["bob"]["roles"] == ["writer"]
    assert "(you)" in me.ok("members")
    assert all(record["name"] == "" for record in bob.records("members"))
    bob.ok("members", "name", ours[:10], "ada")
    assert {r["key"]: r["name"] for r in bob.records("members")}[ours] == "ada"
    assert bob.refused("members", "name", "ada", "a\nb") == "ARGUMENT_INVALID"
    assert me.refused("members", "name", ours[:10], "Bob") == "ARGUMENT_INVALID", "another's"
    bob.ok("members", "name", ours[:10], "Ada")
    bob.ok("members", "name", ours[:10], "ada")
    assert bob.refused("members", "remove", "ada") == "ROLE_FORBIDS"
    assert me.refused("members", "remove", "nobody") == "MEMBER_UNKNOWN"
    me.ok("members", "remove", "bob")
    assert me.refused("members", "remove", "bob") == "ARGUMENT_INVALID"
    states = {record["name"]: record["state"] for record in me.records("members")}
    assert states["bob"] == "removed"
    listed = {one["key"] for one in me.record("list")["members"]}
    assert listed == {record["key"] for record in me.records("members") if record["name"] != "bob"}
    assert bob.run("clone", me.records("list")[0]["conversation"]).exit_code == 1


def test_leaving_is_asked_first_and_the_last_owner_stays(me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code = code_of(me)
    leaves_a_proof(bob, code)
    me.ok("status")
    bob.ok("join", code)
    mine, theirs = (one.record("key", "show")["key"] for one in (me, bob))
    assert me.refused("members", "remove", mine) == "LAST_OWNER"
    assert bob.refused("members", "remove", theirs) == "NOT_CONFIRMED"
    bob.ok("members", "remove", theirs, "--yes")
    for one in (me, bob):
        one.run("status")
        assert "void" not in one.ok("verify"), "its leaving counts"
    me.ok("members", "remove", mine, "--yes")
    states = {record["key"]: record["state"] for record in me.records("members")}
    assert states == {mine: "removed", theirs: "removed"} | {
        key: "member" for key in states if key not in (mine, theirs)
    }


def test_an_invitation_that_is_not_open_is_refused_with_the_next_step(me: Terminal) -> None:
    me.ok("new")
    code_of(me)
    result = me.run("invitations", "--revoke", "nobody")
    assert result.exit_code == 1
    assert "no invitation for nobody is open" in result.stderr
    assert "antiphon invitations" in result.stderr
    assert me.refused("invitations", "--revoke", "nobody") == "ARGUMENT_INVALID"
    assert me.record("invitations", "--revoke", "bob") == {"name": "bob", "revoked": 1}


def test_a_host_is_invited_by_a_code_that_no_person_can_use(me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    result = me.run("invite", "a host", "--role", "host", "--at", "192.0.2.7:7412")
    code = result.stdout.strip()
    assert "--hub 192.0.2.7:7412 --invitation CODE" in " ".join(result.stderr.split())
    assert bob.refused("join", code) == "ARGUMENT_INVALID"
    assert me.refused("invite", "bob", "--role", "owner") == "ARGUMENT_INVALID"
    me.ok("invitations", "--revoke", "a host")


def test_a_conversation_begins_without_a_host(world: World, me: Terminal) -> None:
    begun = me.record("new", "--no-host")
    assert (begun["host"], begun["host_reason"], begun["synchronized"]) == (None, None, True)
    assert me.refused("send", "hello") == "HOST_MISSING"
    me.ok("send", "--no-request", "hello")
    me.ok("invite", "a host", "--role", "host")
    assert me.refused("new", "--no-host", "--host", "ab" * 32, code=2) == "USAGE_INVALID"
    assert me.record("new", "--no-host", "--temperature", "0.5")["synchronized"]


def test_a_reader_leaves(me: Terminal, bob: Terminal) -> None:
    me.ok("new")
    code = code_of(me, "bob", "--role", "reader")
    leaves_a_proof(bob, code)
    me.ok("status")
    bob.ok("join", code)
    key = bob.record("key", "show")["key"]
    bob.ok("members", "remove", key, "--yes")
    me.ok("status")
    assert {one["key"]: one["state"] for one in me.records("members")}[key] == "removed"
    assert "void" not in me.ok("verify"), "its leaving counts"
    (status,) = bob.record("status")["conversations"]
    assert (status["unsynced"], status["state"]) == (0, "not a member")
