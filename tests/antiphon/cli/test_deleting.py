"""What `antiphon delete` says; how it deletes is in test_keep.py."""

from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.test_terminal import at
from tests.antiphon.cli.test_two_members import Gate, gate, pair

__all__ = ["gate"]


def test_whoever_waits_for_an_answer_is_told_that_the_conversation_was_deleted(gate: Gate) -> None:
    """It waited without end, and Ctrl-C said that the answer goes on into the log."""
    _, bob = pair(gate.world)
    with at(gate.world, bob, "send", "one two three") as sending:
        gate.wait()
        bob.ok("delete", "--yes")
        sending.expect("CONVERSATION_DELETED")
        assert sending.exit_code() == 1


def test_who_deletes_what_was_never_sent_is_told_so(world: World, me: Terminal) -> None:
    """It said "deleted here" alone, of words that nobody else had."""
    sent, kept, other = (me.ok("new").strip() for _ in range(3))
    me.ok("send", "--to", sent, "sent")
    world.stop_hub()
    for conversation in (kept, other):
        me.ok("send", "--no-request", "--to", conversation, "kept")
    lines = "not known to be at a hub: 1 entry\n"
    result = me.run("delete", kept, "--yes")
    assert (result.stdout, result.stderr) == (f"{kept[:12]} deleted here\n", lines)
    assert me.record("delete", other, "--yes")["unsynced"] == 1
    assert me.run("delete", sent, "--yes").stderr == ""
