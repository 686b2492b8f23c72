"""What `antiphon delete` says; how it deletes is in test_keep.py."""

from tests.antiphon.cli.conftest import Terminal, World


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
