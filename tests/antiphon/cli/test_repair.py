"""`antiphon repair`: from every state of a data folder back to a working one."""

from pathlib import Path

import pytest

from antiphon.cli.commands.repair import SECRETS
from model_host.io.files.key_ring import KeyRing
from replica.io import FolderTaken, keys
from replica.io.store.folder_use import FILE
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.antiphon.cli.conftest import Terminal, World
from tests.support.files import overwrite, query

TALKED = (
    ("new", "--system", "Be brief."),
    ("send", "the first message"),
    ("send", "--no-request", "y" * 20_000),  # spans pages
)


def go_offline(world: World) -> None:
    world.stop_host()
    world.stop_hub()


DAMAGES = {
    "header": (0, b"no database at all"),
    "application id": (68, b"\xff"),
    "number": (60, b"\x01\x02\x03\x04"),
    "schema": (100, b"\xff" * 200),
    "page size": (16, b"\x08\x00"),
    "root of the entries": (4096, b"\xff" * 12),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_set_aside_and_read_again(
    world: World, me: Terminal, talked: str, damage: tuple[int, bytes]
) -> None:
    digest = me.record("verify", talked)["digest"]
    overwrite(me.store_path, *damage)
    result = me.run("verify", talked)
    assert result.exit_code == 1
    assert "antiphon repair" in result.stderr
    record = me.record("repair")
    assert record["missing"] == 0
    assert record["set_aside"] is not None
    assert Path(record["set_aside"]).exists()
    assert me.record("verify", talked)["digest"] == digest
    me.ok("send", "--to", talked, "goes on")
    assert me.record("repair")["store"] is None


def test_what_a_page_lost_comes_from_the_hub(world: World, me: Terminal, talked: str) -> None:
    digest = me.record("verify", talked)["digest"]
    pages = me.store_path.stat().st_size // 4096
    for page in range(1, pages):
        overwrite(me.store_path, page * 4096, bytes(4096))
    record = me.record("repair")
    assert (record["kept"], record["missing"]) == (0, 0)
    assert record["unread"] > 0
    assert me.record("verify", talked)["digest"] == digest


def test_a_repair_counts_only_what_came_from_the_hub(
    world: World, me: Terminal, talked: str
) -> None:
    me.ok("send", "--no-request", "behind the genesis, as all others")
    query(me.store_path, "DELETE FROM entries WHERE rowid = (SELECT min(rowid) FROM entries)")
    assert f"{talked[:12]}: 1 entry fetched from the hub" in me.run("repair").stderr


def test_without_the_hub_a_repair_says_what_is_lost(
    world: World, me: Terminal, talked: str
) -> None:
    query(me.store_path, "DELETE FROM entries WHERE length(body) > 10000")
    overwrite(me.store_path, 0, b"broken")
    go_offline(world)
    result = me.run("repair")
    assert "could not be read" in result.stderr
    assert "next: antiphon repair, once it is back" in result.stderr
    world.start_hub()
    assert me.record("repair")["missing"] == 0
    assert "y" * 20_000 in me.ok("log", talked)


def test_without_the_hub_a_healthy_store_needs_no_other_repair(
    world: World, me: Terminal, talked: str
) -> None:
    """It said to repair again once the hub is back, and that there is nothing to repair."""
    go_offline(world)
    result = me.run("repair")
    assert (result.stdout, result.exit_code) == ("nothing to repair\n", 0)
    assert "next:" not in result.stderr
    assert talked in str(me.records("list"))


def test_an_empty_file_is_said_and_filled_again(world: World, me: Terminal, talked: str) -> None:
    digest = me.record("verify", talked)["digest"]
    me.store_path.write_bytes(b"")
    for command in ("list", "send"):
        assert me.refused(*([command] if command == "list" else [command, "x"])) == "STORE_CORRUPT"
    me.ok("repair")
    assert me.record("verify", talked)["digest"] == digest


def test_a_folder_in_place_of_the_store_is_said_by_every_command_and_set_aside(
    world: World, me: Terminal, talked: str
) -> None:
    digest = me.record("verify", talked)["digest"]
    me.store_path.unlink()
    me.store_path.mkdir()
    me.store_path.joinpath("kept").touch()
    for command in (["list"], ["log"], ["status"], ["verify"], ["send", "x"], ["new"]):
        assert me.refused(*command) == "STORE_CORRUPT", command
        shown = me.run(*command).stderr
        assert f"{me.store_path} is not a regular file" in shown, command
        assert "antiphon repair" in shown, command
    record = me.record("repair")
    assert (record["kept"], record["missing"]) == (0, 0)
    assert Path(record["set_aside"]).joinpath("kept").exists()
    assert me.record("verify", talked)["digest"] == digest


def test_a_repair_that_was_cut_short_is_said_and_finished(
    world: World, me: Terminal, talked: str
) -> None:
    digest = me.record("verify", talked)["digest"]
    me.store_path.rename(me.store_path.with_name("log.db.new"))
    for command in (["list"], ["log"], ["send", "x"]):
        assert me.refused(*command) == "STORE_CORRUPT"
    assert "antiphon repair" in me.run("list").stderr
    assert not me.store_path.exists()
    go_offline(world)
    assert "cut short" in me.record("repair")["store"]
    assert me.record("verify", talked)["digest"] == digest


def test_a_lost_end_is_said_by_every_command_until_it_is_repaired(
    world: World, me: Terminal, talked: str
) -> None:
    go_offline(world)
    before = me.record("verify", talked)
    me.ok("send", "--no-request", "written offline, and nowhere else")
    query(me.store_path, "DELETE FROM entries WHERE rowid = (SELECT max(rowid) FROM entries)")
    for arguments in (["list"], ["log"], ["status"]):
        assert "lost the last 1 entry" in me.run(*arguments).stderr, arguments
    assert me.refused("verify", talked) == "CHECKS_FAILED"
    assert "antiphon repair" in me.run("verify", talked).stderr
    assert "1 entry stored here could not be read" in me.run("repair").stderr
    assert me.record("verify", talked)["digest"] == before["digest"]


def test_a_key_file_with_a_wrong_bit_is_corrected(world: World, me: Terminal, talked: str) -> None:
    path = me.data_dir / "identity.key"
    sound = path.read_bytes()
    overwrite(path, 200, bytes([sound[200] ^ 4]))
    assert me.refused("send", "x") == "KEY_FILE_INVALID"
    assert "antiphon repair" in me.run("send", "x").stderr
    assert "corrected" in me.record("repair")["key"]
    assert path.read_bytes() == sound
    me.ok("send", "--to", talked, "goes on")


def test_a_sound_folder_needs_no_repair(world: World, me: Terminal, talked: str) -> None:
    before = sorted(path.name for path in me.store_path.parent.iterdir())
    assert "nothing to repair" in me.ok("repair")
    assert sorted(path.name for path in me.store_path.parent.iterdir()) == before


def test_each_secret_of_a_host_can_be_repaired(tmp_path: Path) -> None:
    """A host does not start with one that was cut off, and names the command."""
    KeyRing.load(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= set(SECRETS)


def test_a_hub_s_folder_is_repaired_too(world: World, me: Terminal, talked: str) -> None:
    digest = me.record("verify", talked)["digest"]
    go_offline(world)
    hub = world.folder / "hub"
    overwrite(hub / "log" / "log.db", 0, b"broken")
    result = me.run("repair", "--data-dir", str(hub), "--json")
    assert result.exit_code == 0, result.output
    assert "members send" in result.stderr
    world.start_hub()
    (status,) = me.record("status", talked)["conversations"]
    assert (status["state"], status["digest"]) == ("synchronized", digest)


def test_a_hub_s_folder_that_lacks_entries_is_not_repaired_yet(
    world: World, me: Terminal, talked: str
) -> None:
    go_offline(world)
    hub = world.folder / "hub"
    query(hub / "log" / "log.db", "DELETE FROM entries WHERE length(body) > 10000")
    overwrite(hub / "log" / "log.db", 0, b"broken")
    result = me.run("repair", "--data-dir", str(hub))
    assert (result.exit_code, "members send" in result.stderr) == (1, True)
    world.start_hub()
    me.ok("status")
    world.stop_hub()
    assert me.record("repair", "--data-dir", str(hub))["missing"] == 0


def test_a_hub_s_folder_whose_deletion_is_lost_is_not_repaired_yet(
    world: World, me: Terminal, talked: str
) -> None:
    me.ok("delete", talked, "--hub", "--yes")
    go_offline(world)
    hub = world.folder / "hub"
    tables = ("tombstones", "tombstones_again")
    for bad, table in enumerate(tables):
        query(hub / "log" / "log.db", f"UPDATE {table} SET finished = 7, checksum = ?", bad)
    record = me.record("repair", "--data-dir", str(hub))
    assert (record["store"], record["deletions_kept"]) == ("deletions in it were damaged", 1)
    for bad, table in enumerate(tables):
        damage = f"UPDATE {table} SET conversation = ?, checksum = 1"
        query(hub / "log" / "log.db", damage, bytes([bad]))
    result = me.run("repair", "--data-dir", str(hub))
    assert result.exit_code == 1
    assert "1 deletion lost: members may bring the conversation back" in result.stderr
    assert "repaired" in result.stdout
    assert "nothing" not in result.output
    assert "nothing to repair" in me.ok("repair", "--data-dir", str(hub))


# --- folders of others ------------------------------------------------------------------------


def test_a_hub_refuses_a_replica_s_folder_and_leaves_it_one(
    world: World, me: Terminal, talked: str
) -> None:
    digest = me.record("verify", talked)["digest"]
    config = HubConfig(data_dir=me.data_dir, listen="127.0.0.1:0")
    with pytest.raises(FolderTaken) as caught:
        world.background.run(start(config))
    assert f"{me.data_dir}-hub" in caught.value.next_step
    assert not (me.data_dir / "ticket.secret").exists()
    overwrite(me.store_path, 4096, b"\xff" * 8192)
    assert me.record("repair")["missing"] == 0
    assert me.record("verify", talked)["digest"] == digest


def test_a_replica_s_folder_on_which_a_hub_was_started_once_is_fetched_from_the_hub(
    world: World, me: Terminal, talked: str
) -> None:
    """A hub of an earlier version took the folder, and left its secret there."""
    digest = me.record("verify", talked)["digest"]
    (me.data_dir / FILE).unlink()
    keys.load_or_create_secret(me.data_dir / "ticket.secret")
    pages = me.store_path.stat().st_size // 4096
    for page in range(1, pages, 2):
        overwrite(me.store_path, page * 4096, bytes(4096))
    assert me.record("repair")["missing"] == 0
    assert me.record("verify", talked)["digest"] == digest


def test_a_hub_s_folder_is_read_by_the_command_and_not_written(
    world: World, me: Terminal, talked: str
) -> None:
    digest = me.record("verify", talked)["digest"]
    go_offline(world)
    hub = ("--data-dir", str(world.folder / "hub"))
    assert me.record("verify", talked, *hub)["digest"] == digest
    assert "the first message" in me.ok("log", talked, *hub)
    assert me.record("status", *hub)["hub"]["state"] == "not asked"
    assert me.refused("new", *hub) == "FOLDER_TAKEN"


def test_a_repair_without_the_hub_leaves_whole_conversations_to_the_next(
    world: World, me: Terminal, talked: str
) -> None:
    other = me.record("new")["conversation"]
    me.ok("send", "in another conversation")
    digests = {one: me.record("verify", one)["digest"] for one in (talked, other)}
    go_offline(world)
    for page in range(1, me.store_path.stat().st_size // 4096):
        overwrite(me.store_path, page * 4096, bytes(4096))
    for _ in range(2):
        result = me.run("repair")
        assert result.exit_code == 1
        assert result.stdout == "repaired; 14 entries are still missing\n"
        assert "next: antiphon repair, once it is back" in result.stderr
    world.start_hub()
    assert me.run("repair").stdout == "repaired\n"
    assert {one: me.record("verify", one)["digest"] for one in digests} == digests
    assert me.run("repair").stdout == "nothing to repair\n"


def test_a_store_that_is_gone_is_fetched_again(world: World, me: Terminal, talked: str) -> None:
    digest = me.record("verify", talked)["digest"]
    me.store_path.unlink()
    assert me.record("repair")["unread"] > 0
    assert me.record("verify", talked)["digest"] == digest


def test_a_folder_that_does_not_exist_is_not_repaired(me: Terminal) -> None:
    assert me.refused("repair") == "NO_CONVERSATION"
    assert not me.data_dir.exists()
