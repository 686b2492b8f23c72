"""The joins that wait for an inviter, in `list` and `status`."""

from dataclasses import replace
from pathlib import Path

from antiphon.cli.views.joins import join_lines, join_record, still_pending
from replica.ids import short
from replica.io import PendingJoin, saved_hub
from replica.limits import INVITATION_LIFETIME_S
from replica.log.body import Revocation, Role
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.test_invite import code_of, conversations_at, leaves_a_proof
from tests.support.turns import Turns

DAY_MS = INVITATION_LIFETIME_S * 1000
AGAIN = "antiphon join CODE --data-dir new"


def join_of(turns: Turns, role: Role = Role.WRITER) -> PendingJoin:
    return PendingJoin(b"m" * 32, turns.held.id, turns.owner.public, role, "127.0.0.1:7411", DAY_MS)


def test_a_join_says_who_has_not_answered_and_what_to_do() -> None:
    turns = Turns()
    join = join_of(turns, Role.READER)
    who, where = short(turns.owner.public), short(turns.held.id)
    assert join_lines([join], 0, AGAIN) == [
        f"{where}  joining as reader: no answer of {who} when last asked [JOIN_PENDING]."
        " next: antiphon join CODE --data-dir new, once the inviter is online"
    ]
    assert join_lines([join], DAY_MS, AGAIN) == [
        f"{where}  joining as reader: no answer of {who} before the code expired"
        " [INVITE_EXPIRED]. next: ask the inviter for another code"
    ]
    states = [join_record(join, now_ms)["state"] for now_ms in (0, DAY_MS)]
    assert states == ["pending", "expired"]


def test_several_codes_for_the_same_are_one_line_that_counts_them() -> None:
    """Each was a line, and all of them were the same."""
    turns = Turns()
    join = join_of(turns)
    late = replace(join, mailbox=b"n" * 32, expire_time_ms=2 * DAY_MS)
    last = replace(late, mailbox=b"o" * 32)
    reader = replace(join_of(turns, Role.READER), mailbox=b"r" * 32)
    who = short(turns.owner.public)
    lines = [line.split("  ")[1] for line in join_lines([join, reader, late, last], 0, AGAIN)]
    assert [line.split(" when")[0] for line in lines] == [
        f"joining as writer by 3 codes: no answer of {who}",
        f"joining as reader: no answer of {who}",
    ]
    expired, pending = join_lines([join, late, last], DAY_MS, AGAIN)
    assert "as writer: " in expired
    assert "as writer by 2 codes: " in pending
    (all_expired,) = join_lines([late, last], 2 * DAY_MS, AGAIN)
    assert f"by 2 codes: no answer of {who} before they expired [INVITE_EXPIRED]" in all_expired


def test_a_join_is_shown_until_its_role_is_held_or_a_day_behind_its_end() -> None:
    turns = Turns()
    join, own = join_of(turns), turns.writer.public
    stranger = turns.host.public  # a member, but no writer
    assert still_pending([join], [], own, 0) == [join]
    assert still_pending([join], [turns.held], None, 0) == [join]
    assert still_pending([join], [turns.held], stranger, 0) == [join]
    assert still_pending([join], [turns.held], own, 0) == []
    assert still_pending([join], [], own, 2 * DAY_MS) == [join]
    assert still_pending([join], [], own, 2 * DAY_MS + 1) == []
    other = replace(join, role=Role.READER)
    assert still_pending([join, other], [turns.held], own, 0) == [other]
    turns.change(Revocation(own))
    assert still_pending([join, other], [turns.held], own, 0) == []


def test_a_join_without_an_answer_is_listed_until_it_has_one(world: World, me: Terminal) -> None:
    """`list` and `status` said that there is no conversation yet."""
    conversation = me.record("new")["conversation"]
    bob, code = world.replica("bob"), code_of(me)
    leaves_a_proof(bob, code)
    leaves_a_proof(bob, code)
    for command in ("list", "status"):
        said = bob.run(command).stderr
        assert said.count("joining as writer: no answer of") == 1
        assert f"{conversation[:12]}  joining" in said
        assert "[JOIN_PENDING]. next: antiphon join CODE" in said
        assert "no conversation yet" not in said
    joins = bob.record("status")["joins"]
    (join,) = joins
    assert (join["conversation"], join["role"]) == (conversation, "writer")
    assert bob.records("list") == joins
    assert code not in bob.store_path.read_bytes().decode(errors="replace")
    own = bob.record("new")["conversation"]
    assert "joining as writer" in bob.run("list").stderr
    assert [one["conversation"] for one in bob.records("list")] == [own, conversation]
    assert "joining" not in bob.run("status", own).stderr
    me.ok("status")
    bob.ok("join", code)
    for command in ("list", "status"):
        assert "joining" not in bob.run(command).stderr


def test_a_refused_join_waits_for_no_answer(world: World, me: Terminal) -> None:
    me.ok("new")
    code = code_of(me)
    for name in ("bob", "eve"):
        leaves_a_proof(world.replica(name), code)
    me.ok("status")
    ends = {}
    for name in ("bob", "eve"):
        one = world.replica(name)
        ends[name] = one.run("join", code, "--no-wait").exit_code
        assert "joining" not in one.run("list").stderr
    assert sorted(ends.values()) == [0, 1]


def test_a_join_that_clone_completed_is_over_once_the_conversation_is_deleted(
    world: World, me: Terminal
) -> None:
    """It was named as pending again until its code expired."""
    conversation = me.record("new")["conversation"]
    bob = world.replica("bob")
    leaves_a_proof(bob, code_of(me))
    leaves_a_proof(bob, code_of(me, "eve"))
    assert "as writer by 2 codes: " in bob.run("list").stderr
    me.ok("status")
    bob.ok("clone", conversation)
    assert "joining" not in bob.run("list").stderr
    bob.ok("delete", conversation, "--yes")
    for command in ("list", "status"):
        assert "joining" not in bob.run(command).stderr


def test_a_join_without_an_answer_is_named_though_what_is_here_is_deleted(
    world: World, me: Terminal, tmp_path: Path
) -> None:
    conversation, bundle = me.record("new")["conversation"], str(tmp_path / "bundle")
    bob = world.replica("bob")
    leaves_a_proof(bob, code_of(me))
    me.ok("export", conversation, bundle)
    bob.ok("import", bundle)
    bob.ok("delete", conversation, "--yes")
    assert "joining as writer: no answer of" in bob.run("list").stderr


def test_a_folder_that_joined_stays_at_its_hub(world: World, me: Terminal) -> None:
    """A hub that the settings name for all folders was sent what is shared at another one."""
    (world.folder / "elsewhere").mkdir()
    other = World(world.folder / "elsewhere", world.background)
    other.start_hub()
    try:
        eve = other.replica("eve")
        shared = eve.record("new", "--no-host")["conversation"]
        code = code_of(eve)
        leaves_a_proof(me, code)
        eve.ok("status")
        me.ok("join", code)
        # The environment names the hub of `world`.
        assert me.record("status")["hub"]["address"] == other.address
        me.ok("send", "for eve alone", "--no-request")
        assert shared not in conversations_at(world)
        assert "for eve alone" in eve.ok("log")
        me.ok("status", "--hub-address", world.address)
        assert shared in conversations_at(world)
    finally:
        other.stop_hub()


def test_the_hub_of_the_code_is_the_default_from_then_on(world: World, me: Terminal) -> None:
    me.ok("new")
    at = world.address.replace("127.0.0.1", "localhost")
    codes = code_of(me, "bob", "--at", at), code_of(me, "eve")
    folders = [world.replica(name) for name in ("bob", "eve")]
    for one, code in zip(folders, codes, strict=True):
        leaves_a_proof(one, code)
        me.ok("status")
        one.ok("join", code)
    assert [saved_hub(one.data_dir) for one in folders] == [at, world.address]
