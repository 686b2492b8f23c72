"""Which model host a new conversation is granted to, with strangers' hosts on the same hub."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_host.kv.archive import MAGIC
from replica.ids import PublicKey, short
from tests.antiphon.cli.conftest import Terminal, World


@pytest.fixture
def stranger(world: World) -> Iterator[PublicKey]:
    """A stranger's host, linked before the hub's own, with a key that sorts before it."""
    world.stop_host()
    with world.stranger() as key:
        world.start_host()
        yield key


@pytest.fixture
def unvouched(world: World) -> None:
    """A hub that vouches for no host; its host is linked anyway."""
    restart(world, vouches=False)


def restart(world: World, *, vouches: bool) -> None:
    """Restart hub and host after the operator changed the hub's settings."""
    world.stop_host()
    world.stop_hub()
    world.vouches = vouches
    world.start_hub()
    world.start_host()


def own_host(world: World) -> str:
    """Return the key of the hub's own host."""
    (key,) = world.hub_config.host_keys
    return key


def test_a_strangers_host_with_a_low_key_is_not_granted(
    world: World, stranger: PublicKey, me: Terminal
) -> None:
    assert stranger.hex() < own_host(world)
    record = me.record("new", "--system", "between us")
    assert (record["host"], record["host_reason"]) == (own_host(world), "vouched")
    assert "vouched for by the hub" in me.run("new").stderr
    granted = [r["grant"]["key"] for r in me.records("log") if r.get("grant")]
    assert granted == [own_host(world)]
    assert me.ok("send", "hello") == "You said: hello\n"


def test_no_conversation_begins_where_the_hub_vouches_for_no_host(
    unvouched: None, stranger: PublicKey, me: Terminal
) -> None:
    assert me.refused("new", "--system", "between us") == "NO_HOST"
    assert me.records("list") == []
    said = me.run("new").stderr
    assert "vouches for none of the model hosts linked to it (2)" in said
    assert all(way in said for way in ("--host KEY", "pin it", "--host-key KEY"))


def test_a_pinned_host_comes_before_a_vouched_one_and_a_named_one_before_both(
    world: World, stranger: PublicKey, me: Terminal
) -> None:
    (world.folder / "config.toml").write_text(f'host = "{stranger.hex().upper()}"\n')
    record = me.record("new")
    assert (record["host"], record["host_reason"]) == (stranger.hex(), "pinned")
    assert "pinned in the settings" in me.run("new").stderr
    record = me.record("new", "--host", own_host(world))
    assert (record["host"], record["host_reason"]) == (own_host(world), "named")
    assert "named with --host" in me.run("new", "--host", own_host(world)).stderr


def test_a_host_is_pinned_by_the_environment_too(
    world: World, me: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.folder / "config.toml").write_text(f'host = "{"ab" * 32}"\n')
    monkeypatch.setenv("ANTIPHON_HOST", "cd" * 32)
    assert me.record("new")["host"] == "cd" * 32


def test_a_pinned_key_that_is_none_is_a_usage_error(world: World, me: Terminal) -> None:
    (world.folder / "config.toml").write_text('host = "abc"\n')
    result = me.run("list")
    assert result.exit_code == 2
    assert "host: 'abc' is not a key" in result.stderr


def test_offline_only_a_named_or_pinned_host_is_granted(world: World, me: Terminal) -> None:
    world.stop_host()
    world.stop_hub()
    assert me.refused("new") == "NO_HOST"
    assert "the hub is away" in me.run("new").stderr
    (world.folder / "config.toml").write_text(f'host = "{"ab" * 32}"\n')
    assert me.record("new")["host_reason"] == "pinned"


def test_a_host_that_was_removed_is_asked_for_nothing(world: World, me: Terminal) -> None:
    me.ok("new")
    me.ok("members", "remove", own_host(world)[:12])
    assert "no model host is a member of this conversation" in me.run("pages").stderr
    assert [me.refused(one) for one in ("warm", "pages", "replay")] == 3 * ["HOST_MISSING"]


@pytest.mark.parametrize("command", ["warm", "replay"])
def test_a_host_is_asked_that_answers_questions(world: World, me: Terminal, command: str) -> None:
    with world.stranger("127.0.0.1:1") as answering:  # nobody listens at port 1
        me.ok("new", "--host", own_host(world), "--member", f"{answering.hex()}:host")
        me.ok("send", "hello")
        assert me.refused(command, "--host", own_host(world)) == "NO_HOST"
        assert me.refused(command) == "HOST_UNREACHABLE"


def test_a_hub_asked_as_a_model_host_is_said_to_be_none(world: World, me: Terminal) -> None:
    me.ok("new")
    asked = me.run("pages", "show", "--host-address", world.address)
    assert f"{world.address} is not the address of a model host" in asked.stderr
    assert "NOT_A_HOST" in asked.stderr
    assert "does not answer" not in asked.stderr


def test_vouching_withdrawn_revokes_nothing(world: World, me: Terminal) -> None:
    me.ok("new")
    restart(world, vouches=False)
    assert me.ok("send", "still here") == "You said: still here\n"
    assert me.refused("new") == "NO_HOST"


def test_status_marks_the_hosts_the_hub_vouches_for(
    world: World, stranger: PublicKey, me: Terminal
) -> None:
    hosts = me.record("status")["hub"]["hosts"]
    marks = [(host["key"], host["vouched"]) for host in hosts]
    assert marks == [(own_host(world), True), (stranger.hex(), False)]
    first, second = (line for line in me.ok("status").splitlines() if line.startswith("host"))
    assert first.endswith("Scripted  vouched for")
    assert second.endswith("Scripted  not vouched for")


def host_findings(me: Terminal) -> list[tuple[str, str]]:
    found = [record for record in me.records("doctor") if record["check"] == "host"]
    return [(record["verdict"], record["detail"]) for record in found]


@pytest.mark.xdist_group("doctor")  # one process imports torch
@pytest.mark.usefixtures("forked_models")
def test_doctor_looks_at_hosts_one_could_be_granted_to_and_counts_the_rest(
    world: World, stranger: PublicKey, me: Terminal
) -> None:
    own, others = host_findings(me)
    assert own[0] == others[0] == "ok"
    assert own[1].startswith(f"{own_host(world)[:12]}  Scripted  vouched for")
    assert others[1].startswith("1 more linked, not vouched for")
    (world.folder / "config.toml").write_text(f'host = "{stranger.hex()}"\n')
    own, pinned = host_findings(me)
    assert pinned[1].startswith(f"{short(stranger)}  Scripted  pinned")


@pytest.mark.xdist_group("doctor")  # one process imports torch
@pytest.mark.usefixtures("forked_models")
def test_doctor_warns_where_no_host_could_be_granted(
    world: World, unvouched: None, me: Terminal
) -> None:
    ((verdict, detail),) = host_findings(me)
    assert (verdict, detail) == ("warn", "the hub vouches for none of the 1 linked to it")
    (world.folder / "config.toml").write_text(f'host = "{"ab" * 32}"\n')
    ((verdict, detail),) = host_findings(me)
    assert verdict == "warn"
    assert detail == "the settings pin abababababab, which the hub does not name"


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("replay", ()), ("warm", ()), ("top", ()), ("pages show", ()),
     ("pages export", ("ID", "FILE")), ("pages import", ("FILE",))],
)  # fmt: skip
def test_without_a_host_to_ask_the_next_step_has_an_option_of_the_command(
    me: Terminal, tmp_path: Path, command: str, arguments: tuple[str, ...]
) -> None:
    begun = me.record("new")["conversation"]
    archive = tmp_path / "archive"
    if command == "pages import":
        archive.write_bytes(MAGIC + bytes.fromhex(begun))
    me.world.stop_host()
    given = {"ID": begun, "FILE": str(archive)}
    refused = me.run(*command.split(), *map(given.__getitem__, arguments))
    assert "NO_HOST" in refused.stderr, refused.output
    if command == "top":
        assert "no model host is linked to the hub" in refused.stderr
    (option,) = re.findall(r"`(--host[a-z-]*)", refused.stderr)
    assert re.search(rf"{option}\b(?!-)", me.ok(*command.split(), "--help"))
