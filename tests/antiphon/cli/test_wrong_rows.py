"""A wrong value in one derived or misfiled row stops no command (LINK-63)."""

import pytest

from tests.antiphon.cli.conftest import Terminal, World
from tests.support.files import query

LAST = "WHERE rowid = (SELECT max(rowid) FROM entries)"
WRONGS = {
    "another conversation": (f"UPDATE entries SET conversation = zeroblob(32) {LAST}",),
    "a conversation that is text": (f"UPDATE entries SET conversation = 'text' {LAST}",),
    "an id that is a number": (f"UPDATE entries SET id = 7 {LAST}",),
    "derived rows": (
        "UPDATE acks SET peer = 'text' WHERE lane = (SELECT min(lane) FROM acks)",
        "UPDATE acks SET lane = x'00', head = 'text', acked_ms = 'never'"
        " WHERE lane = (SELECT max(lane) FROM acks)",
        "UPDATE meta SET value = x'7b' WHERE key LIKE 'cli %'",
        "UPDATE meta SET value = 'text' WHERE key = 'cli current'",
        "UPDATE membership SET checksum = 0",
        "INSERT INTO quarantine VALUES ('x', 'y', 1, 2, 3, 'z', 4, 5)",
    ),
}


@pytest.mark.parametrize("wrongs", WRONGS.values(), ids=WRONGS.keys())
def test_every_command_goes_on(world: World, me: Terminal, wrongs: tuple[str, ...]) -> None:
    conversation = me.record("new")["conversation"]
    me.ok("send", "the first message")
    for sql in wrongs:
        query(me.store_path, sql)
    for arguments in (
        ["list"],
        ["status"],
        ["log", conversation],
        ["log", conversation, "--graph"],
    ):
        me.ok(*arguments)
    me.ok("send", "--to", conversation, "the second message")
    me.ok("repair")
    assert me.record("verify", conversation)["ok"]
    (status,) = [
        s for s in me.record("status")["conversations"] if s["conversation"] == conversation
    ]
    assert (status["state"], status["missing"]) == ("synchronized", [])


@pytest.mark.parametrize("wrongs", WRONGS.values(), ids=WRONGS.keys())
def test_a_hub_starts_and_serves(world: World, me: Terminal, wrongs: tuple[str, ...]) -> None:
    conversation = me.record("new")["conversation"]
    me.ok("send", "the first message")
    world.stop_host()
    world.stop_hub()
    for sql in wrongs:
        query(world.folder / "hub" / "log" / "log.db", sql)
    world.start_hub()
    other = me.record("new", "--host", "ab" * 32)
    assert other["synchronized"]
    (status,) = me.record("status", conversation)["conversations"]
    assert status["state"] == "synchronized"
