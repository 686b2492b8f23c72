"""A damaged row in a replica's store: commands work, or print a next step for it alone."""

from pathlib import Path

import pytest

from replica.log import codec
from replica.log.kinds import Kind
from tests.antiphon.cli.conftest import Talk, Terminal, World
from tests.support.files import break_page, flip_byte, query

KINDS = [Kind.GENESIS, Kind.MEMBER, Kind.REQUEST, Kind.SEAL]
CLOSING = (Kind.GENESIS, Kind.MEMBER)


TALKED = (("new",), ("new", "--system", "Be brief."), ("send", "the first message"))


@pytest.fixture
def other(talk: Talk) -> str:
    """The id of a conversation that stays sound."""
    return talk.conversations[0]


def damage(terminal: Terminal, conversation: str, kind: Kind) -> None:
    """Flip a bit in the body of the newest entry of a kind."""
    rows = query(
        terminal.store_path,
        "SELECT header, signature, body FROM entries WHERE conversation = ?",
        bytes.fromhex(conversation),
    )
    bodies = []
    for header, signature, body in rows:
        assert isinstance(header, bytes)
        assert isinstance(signature, bytes)
        assert isinstance(body, bytes)
        if codec.decode_entry(header, signature, None).header.kind == kind:
            bodies.append(body)
    flip_byte(terminal.store_path, bodies[-1])


def listed(terminal: Terminal) -> dict[str, dict]:
    return {record["conversation"]: record for record in terminal.records("list")}


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_hub_every_command_works_or_prints_a_next_step(
    world: World, me: Terminal, other: str, talked: str, tmp_path: Path, kind: Kind
) -> None:
    damage(me, talked, kind)
    world.stop_host()
    world.stop_hub()
    is_closed = kind in CLOSING

    def outcome(*arguments: str) -> str:
        result = me.run(*arguments)
        assert "Traceback" not in result.output
        return "" if result.exit_code == 0 else me.refused(*arguments)

    damaged = "CONVERSATION_DAMAGED"
    assert {c: r["is_damaged"] for c, r in listed(me).items()} == {other: False, talked: is_closed}
    assert len(listed(me)[talked]["missing"]) == 1
    assert "lost" in me.run("list").stderr
    statuses = me.record("status")["conversations"]
    states = {s["conversation"]: s["state"] for s in statuses}
    assert states == {other: "offline", talked: "damaged" if is_closed else "offline"}
    begins = damaged if kind is Kind.GENESIS else ""
    assert outcome("log", talked) == outcome("log", talked, "--graph") == begins
    assert outcome("fork", talked) == begins
    assert outcome("send", "--no-request", "--to", talked, "x") == (damaged if is_closed else "")
    assert outcome("export", talked, str(tmp_path / "one")) == (damaged if is_closed else "")
    assert outcome("verify", talked) == "CHECKS_FAILED"
    assert outcome("chat", talked) == begins
    # The other one is unchanged.
    for arguments in (["log", other], ["export", other, str(tmp_path / "two")], ["verify", other]):
        me.ok(*arguments)
    me.ok("send", "--no-request", "--to", other, "x")
    me.ok("delete", talked, "--yes")
    assert listed(me).keys() == {other}
    assert query(me.store_path, "SELECT count(*) FROM quarantine") == [(0,)]


@pytest.mark.parametrize("command", ["status", "log", "send"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_hub_restores_the_losses_of_the_store(
    me: Terminal, talked: str, kind: Kind, command: str
) -> None:
    digest = me.record("verify", talked)["digest"]
    damage(me, talked, kind)
    arguments = {"status": [talked], "log": [talked], "send": ["--to", talked, "again"]}
    me.ok(command, *arguments[command])
    record = listed(me)[talked]
    assert not record["missing"]
    assert not record["is_damaged"]
    assert me.record("verify", talked)["ok"]
    assert command == "send" or me.record("verify", talked)["digest"] == digest


@pytest.mark.parametrize("kind", [Kind.GENESIS, Kind.MEMBER])
def test_a_bundle_restores_the_losses_of_the_store(
    world: World, me: Terminal, talked: str, tmp_path: Path, kind: Kind
) -> None:
    me.ok("export", talked, str(tmp_path / "bundle"))
    digest = me.record("verify", talked)["digest"]
    damage(me, talked, kind)
    world.stop_host()
    world.stop_hub()
    assert me.refused("send", "--no-request", "--to", talked, "x") == "CONVERSATION_DAMAGED"
    assert me.record("import", str(tmp_path / "bundle"))["digest"] == digest
    me.ok("send", "--no-request", "--to", talked, "x")
    assert not listed(me)[talked]["missing"]


def test_a_bundle_of_another_conversation_repairs_nothing_and_damages_nothing(
    world: World, me: Terminal, other: str, talked: str, tmp_path: Path
) -> None:
    me.ok("export", other, str(tmp_path / "bundle"))
    damage(me, talked, Kind.GENESIS)
    world.stop_host()
    world.stop_hub()
    me.ok("import", str(tmp_path / "bundle"))
    assert listed(me)[talked]["is_damaged"]


def test_a_conversation_that_can_not_be_read_is_listed_beside_the_others(
    world: World, me: Terminal, other: str, talked: str
) -> None:
    me.ok("send", "--no-request", "--to", talked, "x" * 30_000)
    break_page(me.store_path, b"x" * 4_000)
    for _ in range(2):
        records = listed(me)
        assert records.keys() == {other, talked}
        assert records[talked]["is_damaged"]
        statuses = {s["conversation"]: s for s in me.record("status")["conversations"]}
        assert statuses[talked]["refusal"] == "STORE_CORRUPT"
        assert statuses[other]["state"] == "synchronized"
        assert me.refused("log", talked) == "STORE_CORRUPT"
        me.ok("log", other)
        world.stop_host()
        world.stop_hub()
        world.start_hub()
