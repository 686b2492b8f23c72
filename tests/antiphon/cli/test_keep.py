"""The commands log, list, status, verify, export, import, delete and key."""

import base64
import os
import stat
from io import BytesIO
from pathlib import Path

import pytest

from replica.conversation.place import newest_place
from replica.io.driver.replica import Replica
from replica.io.files.keys import load_or_create
from replica.log.body import Message, Opaque, Speaker, Text
from replica.log.bundle import decode_bundle
from replica.refusals import StoreFull
from tests.antiphon.cli.conftest import Terminal, World
from tests.support.files import flip_byte, query

OPAQUE = bytes(range(256)) * 3


TALKED = (
    ("new", "--system", "Be brief."),
    ("send", "the first message"),
    ("send", "the second message"),
)


def test_a_log_shows_authors_and_messages_in_order(me: Terminal, talked: str) -> None:
    lines = [line for line in me.ok("log").splitlines() if not line.startswith(" ")]
    assert [line.split()[1] for line in lines] == ["system", "you", "model", "you", "model"]
    assert "the first message" in lines[1]


def test_a_log_as_json_holds_every_entry(me: Terminal, talked: str) -> None:
    records = me.records("log", talked[:10])
    assert records[0]["kind"] == "genesis"
    assert [r["kind"] for r in records].count("seal") == 2
    assert all(r["conversation"] == talked for r in records)


def test_a_cursor_goes_on_where_it_stands(me: Terminal, talked: str) -> None:
    records = me.records("log")
    last = records[-1]["id"]
    assert me.records("log", "--after", last) == []
    me.ok("send", "a third message")
    fresh = me.records("log", "--after", last)
    assert [r["kind"] for r in fresh] == ["message", "request", "seal", "generation"]


def test_a_graph_draws_branches_in_ascii(me: Terminal, talked: str) -> None:
    first = next(r for r in me.records("log") if r["kind"] == "generation")
    me.ok("send", "another second message", "--at", first["id"])
    graph = me.ok("log", "--graph")
    assert graph.isascii()
    assert "|\\" in graph
    assert graph.count("second message") == 4
    seals = me.records("log", "--graph")
    assert sum(seal["is_tip"] for seal in seals) == 2


def test_a_list_marks_the_conversation_used_last(me: Terminal, talked: str) -> None:
    second = me.record("new")["conversation"]
    records = me.records("list")
    assert {r["conversation"]: r["is_current"] for r in records} == {talked: False, second: True}
    shown = me.ok("list")
    assert "the first message" in shown
    assert talked[:12] in shown


def test_status_shows_the_state_at_the_hub(me: Terminal, talked: str) -> None:
    record = me.record("status")
    assert record["hub"]["state"] == "linked"
    assert record["hub"]["hosts"][0]["profiles"] == ["Scripted"]
    (held,) = record["conversations"]
    assert held["state"] == "synchronized"
    assert held["unsynced"] == 0
    assert held["last_ack_ms"]
    assert "synchronized" in me.ok("status")


def test_offline_everything_local_works_and_says_so(
    world: World, me: Terminal, talked: str
) -> None:
    me.ok("status")  # the hub says what it holds
    world.stop_host()
    world.stop_hub()
    result = me.run("send", "into the void")
    assert result.exit_code == 0
    assert "offline: 2 entries will be sent when the hub is back" in result.stderr
    assert "into the void" in me.ok("log")
    assert me.record("status")["conversations"][0]["unsynced"] == 2
    assert "away" in me.ok("status")
    assert me.record("verify")["ok"]
    world.start_hub()
    world.start_host()
    assert me.record("status")["conversations"][0]["state"] == "synchronized"


def test_ids_may_be_shortened_to_an_unambiguous_prefix(me: Terminal, talked: str) -> None:
    assert me.ok("log", talked[:9]) == me.ok("log")
    assert me.refused("log", "0" * 20) == "ID_UNKNOWN"
    assert me.refused("log", "not hex") == "ID_UNKNOWN"
    others = [me.record("new")["conversation"] for _ in range(17)]
    digits = [conversation[0] for conversation in (talked, *others)]
    twice = next(digit for digit in digits if digits.count(digit) > 1)
    assert me.refused("log", twice) == "ID_AMBIGUOUS"


def test_where_no_conversation_was_used_last_the_way_to_name_one_is_told(me: Terminal) -> None:
    """As in the folder of a program."""
    *_, last = [me.record("new")["conversation"] for _ in range(3)]
    me.ok("delete", last, "--yes")
    assert me.refused("log") == "ID_AMBIGUOUS"
    told = me.run("log").stderr
    assert "2 conversations are held here, and none of them was used last" in told
    assert "`antiphon list` shows the conversations" in told
    assert "prefix" not in told  # none was given


def test_before_the_first_conversation_every_command_names_the_next_step(me: Terminal) -> None:
    for arguments in (["log"], ["verify"], ["export", "ab", "x.bundle"], ["send", "hello"]):
        assert me.refused(*arguments) == "NO_CONVERSATION"
    assert me.records("list") == []
    assert me.record("status")["hub"]["state"] == "linked"
    for name in ("list", "status"):
        assert "antiphon new" in me.run(name).stderr


def test_a_store_of_another_draft_is_refused_with_the_way_to_export(
    me: Terminal, talked: str
) -> None:
    query(me.store_path, "PRAGMA user_version = 2")
    me.store_path.with_name("log.db.mark").unlink()  # that version wrote its own, or none
    for arguments in (["list"], ["log"], ["verify"], ["send", "hello"]):
        assert me.refused(*arguments) == "DRAFT_UNKNOWN"
    assert "antiphon export" in me.run("list").stderr


def test_verify_finds_a_flipped_byte(me: Terminal, talked: str) -> None:
    assert me.record("verify")["ok"]
    flip_byte(me.store_path, b"the second message")
    result = me.run("verify", "--json")
    assert result.exit_code == 1
    assert "quarantine" in result.stdout
    assert me.refused("verify") == "CHECKS_FAILED"


def test_a_body_in_quarantine_comes_back_from_the_hub(me: Terminal, talked: str) -> None:
    flip_byte(me.store_path, b"the second message")
    assert me.run("verify").exit_code == 1
    assert query(me.store_path, "SELECT count(*) FROM quarantine") == [(1,)]
    result = me.run("log")
    assert "1 body fetched again from the hub" in result.stderr
    assert "the second message" in result.stdout
    assert me.record("verify")["ok"]


def test_an_entry_in_quarantine_comes_back_from_the_hub(me: Terminal, talked: str) -> None:
    header = query(me.store_path, "SELECT header FROM entries ORDER BY rowid LIMIT 1 OFFSET 3")
    content = header[0][0]
    assert isinstance(content, bytes)
    flip_byte(me.store_path, content)
    assert me.run("verify").exit_code == 1
    me.ok("log")
    assert me.record("verify")["ok"]


def test_verify_finds_a_flipped_byte_in_a_header(me: Terminal, talked: str) -> None:
    (header,) = query(me.store_path, "SELECT header FROM entries ORDER BY rowid DESC LIMIT 1")[0]
    assert isinstance(header, bytes)
    flip_byte(me.store_path, header)
    assert me.run("verify").exit_code == 1


def test_a_bundle_verifies_and_a_damaged_one_does_not(
    me: Terminal, talked: str, tmp_path: Path
) -> None:
    file = tmp_path / "talk.bundle"
    exported = me.record("export", talked[:8], str(file))
    assert exported["entries"] == len(decode_bundle(BytesIO(file.read_bytes())).entries)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert me.record("verify", "--bundle", str(file))["digest"] == exported["digest"]
    flip_byte(file, b"the second message")
    assert me.refused("verify", "--bundle", str(file)) == "BUNDLE_INVALID"
    assert me.refused("import", str(file)) == "BUNDLE_INVALID"


def test_a_bundle_is_not_overwritten_without_force(
    me: Terminal, talked: str, tmp_path: Path
) -> None:
    file = tmp_path / "talk.bundle"
    me.ok("export", talked, str(file))
    assert me.refused("export", talked, str(file)) == "FILE_UNUSABLE"
    me.ok("export", talked, str(file), "--force")


def test_a_bundle_replaces_no_device(me: Terminal, talked: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert me.refused("export", talked, str(pipe), "--force") == "ARGUMENT_INVALID"
    assert pipe.is_fifo()


def test_a_foreign_file_among_the_blobs_is_left_out(
    me: Terminal, talked: str, tmp_path: Path
) -> None:
    blobs = me.data_dir / "blobs" / talked
    blobs.mkdir(parents=True)
    (blobs / ".DS_Store").touch()
    file = tmp_path / "talk.bundle"
    me.ok("export", talked, str(file))
    assert decode_bundle(BytesIO(file.read_bytes())).blobs == {}


def test_a_file_that_is_no_bundle_is_refused(me: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear all")
    assert me.refused("import", str(file)) == "BUNDLE_INVALID"
    assert me.refused("import", str(tmp_path / "absent")) == "FILE_UNUSABLE"


def test_a_bundle_can_be_read_without_storing_it(
    world: World, me: Terminal, talked: str, tmp_path: Path
) -> None:
    file = tmp_path / "talk.bundle"
    me.ok("export", talked, str(file))
    other = world.replica("other")
    assert "the second message" in other.ok("import", str(file), "--read-only")
    assert other.records("list") == []


def test_a_bundle_from_another_machine_reseeds_a_hub_that_lost_its_log(
    world: World, me: Terminal, talked: str, tmp_path: Path
) -> None:
    file, backup = tmp_path / "talk.bundle", tmp_path / "key.pem"
    me.ok("export", talked, str(file))
    me.ok("key", "backup", str(backup))
    world.stop_host()
    world.stop_hub()
    _delete(world.folder / "hub" / "log")
    world.start_hub()
    second = world.replica("second machine")
    second.ok("key", "restore", str(backup))
    imported = second.record("import", str(file))
    assert imported["synchronized"]
    # A third replica with only the key gets everything from the hub.
    third = world.replica("third machine")
    third.ok("key", "restore", str(backup))
    world.background.run(_fetch(third, world.address, talked))
    assert third.record("verify", talked)["digest"] == imported["digest"]


def test_a_non_member_may_read_a_bundle_and_gets_the_next_step_to_join(
    world: World, me: Terminal, talked: str, tmp_path: Path
) -> None:
    file = tmp_path / "talk.bundle"
    me.ok("export", talked, str(file))
    other = world.replica("other")
    result = other.run("import", str(file))
    assert result.exit_code == 0
    assert "ask an owner for an invitation" in result.stderr
    assert "the second message" in other.ok("log")


def test_deleting_asks_first_and_needs_a_terminal_for_that(me: Terminal, talked: str) -> None:
    assert me.refused("delete", talked) == "NOT_CONFIRMED"
    me.ok("delete", talked, "--yes")
    assert me.refused("log", talked) == "ID_UNKNOWN"


def test_a_deletion_that_is_cut_short_is_completed_by_the_next(
    me: Terminal, talked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_arguments: object) -> None:
        raise StoreFull

    blobs = me.data_dir / "blobs" / talked
    blobs.mkdir(parents=True)
    (blobs / ("0" * 64)).write_bytes(b"what a blob holds")
    with monkeypatch.context() as patched:
        patched.setattr(Replica, "delete", full)
        assert me.refused("delete", talked, "--yes") == "STORE_FULL"
    assert not blobs.exists()
    assert "the first message" in me.ok("log", talked)
    me.ok("delete", talked, "--yes")
    assert me.refused("log", talked) == "ID_UNKNOWN"


def test_an_owner_deletes_at_the_hub_too(me: Terminal, talked: str) -> None:
    deleted = me.record("delete", talked, "--hub", "--yes")
    assert deleted["entries_at_hub"] > 0
    assert me.refused("log", talked) == "ID_UNKNOWN"


def test_a_member_who_is_no_owner_does_not_delete_at_the_hub(world: World, me: Terminal) -> None:
    other = world.replica("other")
    key = other.ok("key", "show").strip()
    conversation = me.record("new", "--member", f"{key}:writer")["conversation"]
    world.background.run(_fetch(other, world.address, conversation))
    assert other.refused("delete", conversation, "--hub", "--yes") == "ROLE_FORBIDS"
    assert other.ok("list")
    assert me.record("status")["conversations"][0]["state"] == "synchronized"


def test_deleting_at_an_absent_hub_deletes_nothing(world: World, me: Terminal, talked: str) -> None:
    world.stop_host()
    world.stop_hub()
    assert me.refused("delete", talked, "--hub", "--yes") == "HUB_UNREACHABLE"
    assert me.ok("log", talked)


def test_two_members_write_and_read_one_conversation(world: World, me: Terminal) -> None:
    other = world.replica("other")
    key = other.ok("key", "show").strip()
    conversation = me.record("new", "--member", f"{key}:writer")["conversation"]
    me.ok("send", "from the first")
    world.background.run(_fetch(other, world.address, conversation))
    other.ok("send", "from the second")
    assert "from the second" in me.ok("log")
    assert me.record("verify")["digest"] == other.record("verify")["digest"]


def test_opaque_parts_are_byte_identical_through_log_hub_export_and_import(
    world: World, me: Terminal, tmp_path: Path
) -> None:
    conversation = me.record("new")["conversation"]
    world.background.run(_say_opaque(me, world.address, conversation))
    file = tmp_path / "talk.bundle"
    me.ok("export", conversation, str(file))
    other = world.replica("other")
    other.ok("import", str(file))
    for terminal in (me, other):
        (message,) = (r for r in terminal.records("log", conversation) if r["kind"] == "message")
        opaque = message["parts"][1]["opaque"]
        assert base64.b64decode(opaque["data"]) == OPAQUE
        assert opaque["issuer"] == "provider.example"
    assert world.hub is not None
    at_hub = next(iter(world.hub.driver.hub.shelf.values())).log.entries
    bodies = [entry.body for entry in at_hub.values() if entry.body is not None]
    assert sum(OPAQUE in body for body in bodies) == 1
    assert OPAQUE in file.read_bytes()


def test_a_key_is_shown_backed_up_and_restored(world: World, me: Terminal, tmp_path: Path) -> None:
    key = me.ok("key", "show").strip()
    backup = tmp_path / "key.pem"
    me.ok("key", "backup", str(backup))
    assert b"ENCRYPTED" in backup.read_bytes()
    other = world.replica("other")
    other.ok("key", "restore", str(backup))
    assert other.ok("key", "show").strip() == key


def test_a_folder_without_a_key_has_none_to_back_up(me: Terminal, tmp_path: Path) -> None:
    refused = me.run("key", "backup", str(tmp_path / "key.pem"), "--data-dir", str(tmp_path / "no"))
    assert (refused.exit_code, "KEY_FILE_INVALID" in refused.stderr) == (1, True)
    assert "`antiphon key show` creates a key" in refused.stderr
    assert "repair" not in refused.stderr
    me.ok("key", "show", "--data-dir", str(tmp_path / "no"))
    me.ok("key", "backup", str(tmp_path / "key.pem"), "--data-dir", str(tmp_path / "no"))


def test_a_backup_overwrites_nothing_and_a_restore_replaces_no_key(
    world: World, me: Terminal, tmp_path: Path
) -> None:
    backup = tmp_path / "key.pem"
    me.ok("key", "show")
    me.ok("key", "backup", str(backup))
    assert me.refused("key", "backup", str(backup)) == "FILE_UNUSABLE"
    other = world.replica("other")
    other.ok("key", "show")
    assert other.refused("key", "restore", str(backup)) == "KEY_FILE_TAKEN"


def test_beside_a_log_only_the_key_that_wrote_it_is_restored(
    world: World, me: Terminal, talked: str, tmp_path: Path
) -> None:
    mine, theirs, path = tmp_path / "mine", tmp_path / "theirs", me.data_dir / "identity.key"
    me.ok("key", "backup", str(mine))
    other = world.replica("other")
    other.ok("key", "show")
    other.ok("key", "backup", str(theirs))
    path.unlink()
    lost = me.run("key", "backup", str(tmp_path / "late"))
    assert "antiphon key restore FILE" in " ".join(lost.stderr.split())
    refused = me.run("key", "restore", str(theirs))
    assert refused.exit_code == 1
    assert "KEY_FILE_INVALID" in refused.stderr
    assert "wrote the log here" in refused.stderr
    assert not path.exists()
    me.ok("key", "restore", str(mine))
    assert "the second message" in me.ok("log", talked[:12])


def test_a_key_file_that_is_none_or_open_to_others_is_refused(me: Terminal, tmp_path: Path) -> None:
    assert me.refused("key", "backup", str(tmp_path / "x")) == "KEY_FILE_INVALID"
    me.ok("key", "show")
    path = me.data_dir / "identity.key"
    path.chmod(0o644)
    assert me.refused("key", "show") == "KEY_FILE_INVALID"
    path.chmod(0o600)
    path.write_text("no key")
    assert me.refused("new") == "KEY_FILE_INVALID"


def test_a_second_process_reads_while_the_first_holds_the_replica(
    world: World, me: Terminal, talked: str
) -> None:
    async def look() -> tuple[str, str]:
        async with Replica.open(me.store_path, load_or_create(me.data_dir / "identity.key")):
            import asyncio

            shown = await asyncio.to_thread(me.ok, "log")
            reason = await asyncio.to_thread(me.refused, "send", "hello")
            return shown, reason

    shown, reason = world.background.run(look())
    assert "the second message" in shown
    assert reason == "STORE_LOCKED"


async def _fetch(terminal: Terminal, address: str, conversation: str) -> None:
    """Let a replica get a conversation it is a member of from the hub."""
    key = load_or_create(terminal.data_dir / "identity.key")
    async with Replica.open(terminal.store_path, key, address, follow=True) as replica:
        id_ = bytes.fromhex(conversation)
        await replica.wait_for(lambda: any(held == id_ for held in replica.shelf), 10.0)
        for held in tuple(replica.shelf):
            await replica.wait_synced(held, 10.0)


async def _say_opaque(terminal: Terminal, address: str, conversation: str) -> None:
    key = load_or_create(terminal.data_dir / "identity.key")
    async with Replica.open(terminal.store_path, key, address) as replica:
        (stored,) = await replica.store.conversations()
        held = await replica.load(stored.conversation)
        await replica.follow(held.id)
        place = newest_place(held)
        parts = (Text("see: "), Opaque("provider.example", data=OPAQUE))
        await replica.append(held.id, Message(Speaker.USER, parts), parents=place.parents)
        await replica.wait_synced(held.id, 10.0)


def _delete(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
