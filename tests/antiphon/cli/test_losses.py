"""What a repair could not bring back is said, with its number, in one way by every command."""

import re

import pytest

from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.test_two_members import clone_to
from tests.support.files import flip_byte, overwrite, query

TALKED = (("new",), ("send", "the first message"))


def empty(terminal: Terminal) -> None:
    """Leave nothing of the store but its mark."""
    terminal.store_path.write_bytes(b"")
    for ending in ("-wal", "-shm"):
        terminal.store_path.with_name(f"log.db{ending}").unlink(missing_ok=True)


def entries_of(terminal: Terminal, conversation: str) -> int:
    count: int = terminal.record("verify", conversation)["entries"]
    return count


def unsent(world: World, me: Terminal) -> tuple[str, int]:
    """Return a conversation that no hub ever had, and the number of its entries."""
    world.stop_host()
    world.stop_hub()
    conversation: str = me.record("new", "--host", "ab" * 32)["conversation"]
    for number in range(3):
        me.ok("send", "--no-request", f"message {number}")
    count = entries_of(me, conversation)
    return conversation, count


def shared(world: World) -> tuple[Terminal, Terminal, str]:
    """Return Ada, Bob whom the hub gives nothing any more, and their conversation."""
    ada, bob = world.replica("ada"), world.replica("bob")
    writer = bob.record("key", "show")["key"]
    conversation = ada.ok("new", "--member", f"{writer}:writer").strip()
    clone_to(ada, bob, conversation)
    for number in range(7):
        bob.ok("send", f"message {number}")
    ada.ok("status")
    ada.ok("members", "remove", writer, "--yes")
    return ada, bob, conversation


def test_a_conversation_that_no_hub_had_is_said_to_be_lost_with_its_number(
    world: World, me: Terminal, talked: str
) -> None:
    digest = me.record("verify", talked)["digest"]
    lost, count = unsent(world, me)
    empty(me)
    world.start_hub()
    result = me.run("repair")
    assert result.exit_code == 1
    assert result.stdout == f"repaired; {count} entries are still missing\n"
    assert f"{count} entries that the store held are still missing" in result.stderr
    assert f"the last ones written were of {lost[:12]}" in result.stderr
    assert "antiphon import FILE" in result.stderr
    assert me.record("verify", talked)["digest"] == digest
    assert me.run("repair").stdout == "nothing to repair\n"


def test_what_is_lost_is_said_until_a_hub_was_asked(
    world: World, me: Terminal, talked: str
) -> None:
    at_hub = entries_of(me, talked)
    _, count = unsent(world, me)
    empty(me)
    for _ in range(2):
        result = me.run("repair")
        assert result.exit_code == 1
        assert f"{at_hub + count} entries are still missing" in result.stdout
    world.start_hub()
    me.ok("clone")
    assert f"{count} entries are still missing" in me.run("repair").stdout
    assert me.ok("repair") == "nothing to repair\n"


def test_a_conversation_refused_to_this_key_is_said_to_be_lost_with_its_number(
    world: World, me: Terminal
) -> None:
    ada, bob, conversation = shared(world)
    kept = bob.record("new")["conversation"]
    bob.ok("send", "--to", kept, "hello")
    held = entries_of(bob, conversation)
    empty(bob)
    result = bob.run("repair")
    assert result.exit_code == 1
    assert f"{held} entries that the store held are still missing" in result.stderr
    assert result.stdout == f"repaired; {held} entries are still missing\n"
    bundle = str(world.folder / "bundle")
    ada.ok("export", conversation, bundle)
    bob.ok("import", bundle)
    assert bob.ok("repair") == "nothing to repair\n"


@pytest.fixture
def partly(world: World) -> tuple[Terminal, Terminal, str]:
    """Return Ada, Bob whose store lost an entry and a body, and what the hub refuses to Bob."""
    ada, bob, conversation = shared(world)
    flip_byte(bob.store_path, b"message 5")
    query(bob.store_path, "DELETE FROM entries WHERE rowid = 12")
    overwrite(bob.store_path, 0, b"broken")
    return ada, bob, conversation


LACKS = re.compile(
    r"(?P<count>\d+) entries(?: are still missing| that the store here lost),"
    r" 1 of them the body alone; (?P<behind>\d+) more wait behind these\. (?P<step>.*)"
)


def test_repair_status_and_list_count_the_same_losses_each_time(
    partly: tuple[Terminal, Terminal, str],
) -> None:
    _, bob, _ = partly
    found = set()
    for command in ("repair", "status", "list", "repair", "status"):
        result = bob.run(command)
        match = LACKS.search(result.stderr)
        assert match is not None, (command, result.output)
        found.add((match["count"], match["behind"]))
        assert "restored automatically" not in result.output
        assert "antiphon import FILE" in match["step"]
        assert command == "list" or "The hub sends your key nothing of it" in match["step"]
        assert result.exit_code == (command == "repair")
    ((count, behind),) = found
    assert (count, int(behind) > 0) == ("2", True)
    for command in ("status", "list"):
        record = bob.record(command)
        record = record["conversations"][0] if command == "status" else record
        assert len(record["missing"]) == len(record["bodies_missing"]) == 1
        assert record["behind_missing"] == int(behind)


def test_a_repair_that_mends_nothing_says_what_is_missing_instead(
    partly: tuple[Terminal, Terminal, str], world: World
) -> None:
    ada, bob, conversation = partly
    assert bob.run("repair").stdout == "repaired; 2 entries are still missing\n"
    assert bob.run("repair").stdout == "2 entries are still missing\n"
    bundle = str(world.folder / "bundle")
    ada.ok("export", conversation, bundle)
    bob.ok("import", bundle)
    assert bob.ok("repair") == "nothing to repair\n"
    assert bob.record("verify", conversation)["ok"]
    assert "lost" not in bob.run("status").stderr
