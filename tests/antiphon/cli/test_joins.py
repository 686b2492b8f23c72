"""The joins that wait for an inviter, in `list` and `status`."""

from dataclasses import replace

from antiphon.cli.joins import join_record, join_words, still_pending
from replica.ids import short
from replica.io import PendingJoin
from replica.limits import INVITATION_LIFETIME_S
from replica.log.body import Role
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.test_invite import code_of, leaves_a_proof
from tests.support.turns import Turns

DAY_MS = INVITATION_LIFETIME_S * 1000


def join_of(turns: Turns, role: Role = Role.WRITER) -> PendingJoin:
    return PendingJoin(b"m" * 32, turns.held.id, turns.owner.public, role, "127.0.0.1:7411", DAY_MS)


def test_a_join_says_who_has_not_answered_and_what_to_do() -> None:
    turns = Turns()
    join = join_of(turns, Role.READER)
    who, where = short(turns.owner.public), short(turns.held.id)
    assert join_words(join, 0) == (
        f"{where}  joining as reader: no answer of {who} when last asked [JOIN_PENDING]."
        " next: antiphon join CODE, once the inviter is online"
    )
    assert join_words(join, DAY_MS) == (
        f"{where}  joining as reader: no answer of {who} before the code expired"
        " [INVITE_EXPIRED]. next: ask the inviter for another code"
    )
    states = [join_record(join, now_ms)["state"] for now_ms in (0, DAY_MS)]
    assert states == ["pending", "expired"]


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
    (join,) = bob.record("status")["joins"]
    assert (join["conversation"], join["role"]) == (conversation, "writer")
    assert code not in bob.store_path.read_bytes().decode(errors="replace")
    bob.ok("new")
    assert "joining as writer" in bob.run("list").stderr
    assert "joining" not in bob.run("status", bob.record("list")["conversation"]).stderr
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
