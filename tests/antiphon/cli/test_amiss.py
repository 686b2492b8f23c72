"""Errors of the command: one message, its reason, the next step, no traceback."""

import asyncio
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli import main as entry
from antiphon.cli.commands import send
from antiphon.cli.common.errors import EntryUnknown, PrefixAmbiguous
from antiphon.cli.common.session import only_match
from antiphon.cli.common.turn import TEXT_BYTES_MAX
from replica.ids import EntryId
from replica.io import documents
from replica.io.driver.replica import Replica
from replica.io.files.keys import load_or_create
from replica.refusals import BodyTooLarge
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.processes import ANTIPHON, ROOT, antiphon, environment, forked_antiphon
from tests.support.forked_program import PROGRAMS
from tests.support.scripted_host import words


@pytest.fixture
def stranger(world: World, me: Terminal) -> Terminal:
    """A replica that imported a conversation its key is no member of."""
    conversation = me.record("new")["conversation"]
    me.ok("send", "between us")
    file = world.folder / "talk.bundle"
    me.ok("export", conversation, str(file))
    other = world.replica("other")
    other.ok("import", str(file))
    return other


# --- input -----------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_message_is_refused_and_asks_for_nothing(me: Terminal, text: str) -> None:
    me.ok("new")
    assert me.refused("send", text) == "ARGUMENT_INVALID"
    assert me.run("send", "-", typed=text).exit_code == 1
    assert {record["kind"] for record in me.records("log")} == {"genesis", "member"}


def test_a_text_that_is_not_utf_8_is_refused(me: Terminal) -> None:
    me.ok("new")
    broken = b"caf\xe9".decode(errors="surrogateescape")
    assert me.refused("send", broken) == "ARGUMENT_INVALID"
    assert me.refused("new", "--system", broken) == "ARGUMENT_INVALID"


def test_a_broken_line_does_not_end_a_chat(me: Terminal, world: World) -> None:
    me.ok("new")
    variables = environment(world.folder) | {
        "ANTIPHON_DATA_DIR": str(me.data_dir), "ANTIPHON_HUB": world.address,
    }  # fmt: skip
    broken = b"caf\xe9\nhello\n".decode(errors="surrogateescape")
    with forked_antiphon(["chat"], variables) as process:
        shown, said = process.communicate(broken)
        assert process.wait() == 1
    assert "not valid UTF-8" in said
    assert shown == "You said: hello\n"


@pytest.mark.parametrize("command", ["chat <&-", "send <&-", "chat 0>/dev/null"])
def test_input_that_is_closed_or_can_not_be_read_is_at_its_end(
    me: Terminal, world: World, command: str
) -> None:
    me.ok("new")
    variables = environment(world.folder) | {
        "ANTIPHON_DATA_DIR": str(me.data_dir), "ANTIPHON_HUB": world.address,
    }  # fmt: skip
    line = f"exec {shlex.join(ANTIPHON)} {command}"
    done = subprocess.run(
        ["sh", "-c", line], env=variables, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("seconds", ["inf", "1e30"])
def test_an_answer_may_begin_whenever_it_is_as_late_as_one_likes(
    me: Terminal, seconds: str
) -> None:
    me.ok("new")
    assert me.ok("send", "--within", seconds, "Hello").startswith("You said: Hello")


def test_a_message_longer_than_an_entry_is_refused_before_anything_is_written(
    me: Terminal,
) -> None:
    me.ok("new")
    assert me.refused("send", "x" * (TEXT_BYTES_MAX + 1), "--no-request") == "BODY_TOO_LARGE"
    assert me.refused("new", "--system", "x" * (TEXT_BYTES_MAX + 1)) == "BODY_TOO_LARGE"
    me.ok("send", "x" * TEXT_BYTES_MAX, "--no-request")


class Endless(io.RawIOBase):
    """What a program pipes in that never ends."""

    given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.given += len(buffer)
        assert self.given < 8 * TEXT_BYTES_MAX, "it is read without an end"
        buffer[:] = b"x" * len(buffer)
        return len(buffer)


def test_no_more_is_read_of_a_pipe_than_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(Endless())))
    with pytest.raises(BodyTooLarge, match="more than 524,032 bytes are piped in"):
        send._message_of("-")
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * TEXT_BYTES_MAX + "\n\n"))
    assert send._message_of("-") == "x" * TEXT_BYTES_MAX


def test_stop_texts_no_request_could_carry_are_refused_at_once(me: Terminal) -> None:
    assert me.refused("new", "--stop", "") == "ARGUMENT_INVALID"
    assert me.refused("new", "--stop", "x" * 257) == "ARGUMENT_INVALID"
    many = [argument for number in range(17) for argument in ("--stop", f"stop {number}")]
    assert me.refused("new", *many) == "ARGUMENT_INVALID"


def test_a_wrong_option_is_refused_before_the_hub_is_asked(world: World, me: Terminal) -> None:
    me.ok("new")
    world.stop_hub()
    result = me.run("send", "hello", "--conflict", "maybe")
    assert result.exit_code == 1
    assert "offline" not in result.stderr
    assert me.refused("up", "--numerics", "fp8") == "ARGUMENT_INVALID"


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:port", ":7411", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_a_usage_error(tmp_path: Path, address: str) -> None:
    done = antiphon(tmp_path, "status", "--json", "--hub-address", address)
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["reason"] == "CONFIG_INVALID"
    assert address in error["detail"]


@pytest.mark.parametrize("option", ["--data-dir", "--hub-address", "--config"])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_empty_value_is_not_taken_for_none(tmp_path: Path, option: str, is_first: bool) -> None:
    if option == "--config" and not is_first:
        pytest.skip("it stands in front of the command")
    arguments = (option, "", "list") if is_first else ("list", option, "")
    done = antiphon(tmp_path, *arguments)
    assert (done.returncode, "CONFIG_INVALID" in done.stderr) == (2, True), done.stderr


def test_an_entry_without_digits_is_refused(me: Terminal) -> None:
    me.ok("new")
    me.ok("send", "hello")
    before = me.ok("log", "--json")
    for arguments in (("send", "more", "--at", ""), ("fork", "--at", ""), ("warm", "--at", "")):
        assert me.refused(*arguments) == "ID_UNKNOWN"
    assert me.ok("log", "--json") == before


def test_what_is_no_folder_holds_no_replica(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("/dev/null", tmp_path / "file", tmp_path / "file" / "below"):
        done = antiphon(tmp_path, "list", "--data-dir", str(folder))
        assert (done.returncode, "FILE_UNUSABLE" in done.stderr) == (1, True)
        assert "not a folder" in done.stderr
    assert "no conversation yet" in antiphon(tmp_path, "list", "--data-dir", "new").stderr


def test_a_folder_is_no_settings_file(tmp_path: Path) -> None:
    done = antiphon(tmp_path, "--config", str(tmp_path), "list")
    assert "is no regular file" in done.stderr


def test_help_shows_no_value_where_none_can_be_given(tmp_path: Path) -> None:
    for arguments in (["log", "--help"], ["--help"], ["key", "show", "--help"]):
        assert "bool" not in antiphon(tmp_path, *arguments).stdout


# --- entries of others --------------------------------------------------------------


def test_control_characters_in_a_message_do_not_reach_the_reader(
    world: World, me: Terminal
) -> None:
    world.stop_host()
    world.start_host(lambda asked: words("\x1b]0;owned\x07 and \x9b31m"))
    me.ok("new")
    me.ok("send", "\x1b[31mred :smile: [bold]")
    for shown in (me.ok("log"), me.ok("log", "--graph"), me.ok("list")):
        assert not set(shown) & {"\x1b", "\x07", "\x9b"}
        assert "␛[31mred :smile: [bold]" in shown
    said, answered = (r["text"] for r in me.records("log") if "text" in r)
    assert (said, answered) == ("\x1b[31mred :smile: [bold]", "\x1b]0;owned\x07 and \x9b31m")


def test_a_full_width_title_leaves_space_for_the_rest(me: Terminal) -> None:
    conversation = me.record("new")["conversation"]
    me.ok("send", "日本語で「全角テキスト」を書いてください。これは長い文章です。" * 2)
    shown = me.ok("list")
    assert conversation[:12] in shown
    assert "last entry" in shown


def test_names_and_titles_that_another_client_wrote_leave_space_for_the_rest(me: Terminal) -> None:
    """Any writer can set them, of any length and with any characters."""
    me.ok("new")
    me.ok("send", "the question")
    seal = EntryId(bytes.fromhex(me.records("branches")[0]["seal"]))
    hostile = "red\n* forged  \x1b[31m" + "x" * 20_000

    def write(edit: Any) -> None:
        edit.set_meta("title", hostile)
        edit.set_branch(hostile, seal)
        edit.set_branch("plain", seal)

    async def set_both() -> None:
        key = load_or_create(me.data_dir / "identity.key")
        async with Replica.open(me.store_path, key) as replica:
            (stored,) = await replica.store.conversations()
            await documents.edit(replica, stored.conversation, write)

    asyncio.run(set_both())
    header, branch = me.ok("branches").splitlines()
    assert branch.split()[:2] == ["*", seal.hex()[:6]]
    assert branch.split()[-2:] == ["the", "question"]
    assert header.split() == ["branch", "name", "turns", "last", "message"]
    (title,) = me.ok("title").splitlines()
    assert title.startswith("red * forged ␛[31mxxx")
    assert len(title) < 200
    assert me.record("title")["title"] == hostile
    assert me.record("branches")["names"] == ["plain", hostile]


def test_a_message_written_during_an_answer_stays_in_the_graph(world: World, me: Terminal) -> None:
    me.ok("new")
    world.stop_host()
    me.ok("send", "the question")
    result = me.run("send", "a remark", "--no-request")
    assert "still awaited" in result.stderr
    world.start_host()
    me.ok("send", "--wait", "another question")
    assert me.ok("log", "--graph").count("a remark") == 1


# --- permissions -------------------------------------------------------------------------


def test_a_non_member_reads_and_gets_the_reason_why_writing_fails(stranger: Terminal) -> None:
    assert "between us" in stranger.ok("log")
    assert "no member" in stranger.run("log").stderr
    assert stranger.refused("send", "me too") == "ROLE_FORBIDS"
    assert stranger.refused("send", "me too", "--no-request") == "ROLE_FORBIDS"
    result = stranger.run("chat", typed="me too\n")
    assert "ask an owner for an invitation" in result.stderr
    assert "ROLE_FORBIDS" in result.stderr
    assert result.exit_code == 1
    assert stranger.record("status")["conversations"][0]["state"] == "not a member"


def test_offline_a_stranger_is_not_promised_that_anything_is_sent(
    world: World, stranger: Terminal
) -> None:
    world.stop_host()
    world.stop_hub()
    stderr = stranger.run("log").stderr
    assert "offline" in stderr
    assert "will be sent" not in stderr


# --- files and the unforeseen ---------------------------------------------------------


def test_a_bundle_that_exists_is_named_with_the_way_out(me: Terminal, tmp_path: Path) -> None:
    conversation = me.record("new")["conversation"]
    file = tmp_path / "talk.bundle"
    me.ok("export", conversation, str(file))
    assert "--force" in me.run("export", conversation, str(file)).stderr


def test_a_folder_that_can_not_be_made_is_reported(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    for arguments in (["new"], ["up", "--hub-port", "0"]):
        done = antiphon(tmp_path, *arguments, "--data-dir", str(blocked / "below"))
        assert done.returncode == 1
        assert "next" in done.stderr
        assert "Traceback" not in done.stderr
        assert "INTERNAL" not in done.stderr


@pytest.mark.parametrize(
    ("line", "status", "reason"),
    [
        ("key show --json > /dev/full", 1, "OUTPUT_FAILED"),
        ("key show --json >&-", 0, ""),
        ("model list > /dev/full", 1, "OUTPUT_FAILED"),
        ("model list | true; exit ${PIPESTATUS[0]}", 1, ""),
    ],
)
def test_output_that_goes_nowhere_ends_a_command_without_a_traceback(
    line: str, status: int, reason: str, tmp_path: Path
) -> None:
    forked = [sys.executable, "-S", str(ROOT / "tests/support/forked_here.py"), "antiphon"]
    argv = forked if line.startswith("model") else ANTIPHON  # its output is another process's
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(argv)} {line}"], pass_fds=[PROGRAMS.lend()],
        env=environment(tmp_path) | {"FORKS": str(PROGRAMS.lend())},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == status
    assert reason in done.stderr if reason else not done.stderr, done.stderr


def test_an_unforeseen_error_is_reported_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(entry, "app", fail)
    monkeypatch.setattr("sys.argv", ["antiphon", "log", "--json"])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["error"]["reason"] == "INTERNAL"
    assert "Traceback" not in said.err
    assert "ZeroDivisionError: division by zero" in said.err
    monkeypatch.setattr("sys.argv", ["antiphon", "--verbose", "log"])
    with pytest.raises(ZeroDivisionError):
        entry.main()


def test_a_replica_in_use_is_read_and_the_hub_not_asked(world: World, me: Terminal) -> None:
    me.ok("new")

    async def look() -> dict[str, object]:
        async with Replica.open(me.store_path, load_or_create(me.data_dir / "identity.key")):
            return await asyncio.to_thread(me.record, "status")

    hub = world.background.run(look())["hub"]
    assert isinstance(hub, dict)
    assert hub["state"] == "not asked"
    assert str(hub["error"]).startswith(f"process {os.getpid()} holds")


def test_an_unreachable_hub_is_named_by_its_last_cause(world: World, me: Terminal) -> None:
    me.ok("new")
    world.stop_hub()
    result = me.run("delete", "--hub", "--yes")
    assert result.stderr.startswith("error: the hub does not answer: ")
    assert "ipv4" not in result.stderr


@pytest.mark.parametrize(("count", "ends"), [(4, "030000000000"), (5, "030000000000, …")])
def test_ids_that_are_left_out_are_said(count: int, ends: str) -> None:
    ids = [bytes([n]) + bytes(31) for n in range(count)]
    with pytest.raises(PrefixAmbiguous, match=f"{count} ids begin with 0: .*{ends}$"):
        only_match("0", ids, "entry here", EntryUnknown)
