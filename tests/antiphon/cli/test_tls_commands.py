"""`antiphon up --listen`, `hub serve` and `hub trust` off loopback; daemons are processes."""

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from replica.conversation import decode_invitation, encode_invitation
from replica.ids import PublicKey
from tests.antiphon.cli.processes import (
    antiphon,
    environment,
    first_line,
    forked_antiphon,
)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """The ready record of `antiphon up --listen` with a scripted host, for all tests here."""
    arguments = ["up", "--json", "--hub-port", "0", "--listen", "127.0.0.2:0"]
    with forked_antiphon(arguments, environment(tmp_path_factory.mktemp("up"))) as process:
        yield json.loads(first_line(process.stdout))
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_another_machine_talks_over_tls_once_it_knows_the_key(
    ready: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    (address,), key = ready["hub"]["public"], ready["hub"]["key"]
    there = tmp_path / "there"
    unknown = antiphon(there, "--hub-address", address, "clone")
    assert unknown.returncode == 1
    assert "HUB_KEY_UNKNOWN" in unknown.stderr
    assert "antiphon hub trust --key" in unknown.stderr
    asked = antiphon(there, "--hub-address", address, "hub", "trust")
    assert "NOT_CONFIRMED" in asked.stderr  # no terminal to ask
    assert "--key KEY" in asked.stderr
    assert "--yes" not in asked.stderr
    blind = antiphon(there, "--hub-address", address, "hub", "trust", "--yes")
    assert "HUB_KEY_UNKNOWN" in blind.stderr
    wrong = antiphon(there, "--hub-address", address, "hub", "trust", "--key", "ab" * 32)
    assert "PEER_IDENTITY_CHANGED" in wrong.stderr
    trusted = antiphon(there, "--hub-address", address, "hub", "trust", "--key", key)
    assert trusted.returncode == 0, trusted.stderr
    assert antiphon(there, "--hub-address", address, "new").returncode == 0
    sent = antiphon(there, "--hub-address", address, "send", "hello")
    assert sent.stdout == "You said: hello\n", sent.stderr


def test_two_machines_share_a_conversation_by_a_code(
    ready: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """The newcomer has nothing but the code, and waits until the inviter's replica answers."""
    here, (public,) = ready["hub"]["address"], ready["hub"]["public"]
    there = tmp_path / "there"
    assert antiphon(tmp_path, "--hub-address", here, "new").returncode == 0
    made = antiphon(tmp_path, "--hub-address", here, "invite", "bob", "--at", public, "--json")
    code = json.loads(made.stdout)["code"]
    with forked_antiphon(["join", code], environment(there)) as joining:
        shown = first_line(joining.stderr)
        assert shown.startswith("your key")
        while "JOIN_PENDING" not in shown:
            shown = first_line(joining.stderr)
        said = antiphon(tmp_path, "--hub-address", here, "status")
        assert "bob has joined" in said.stderr
        assert joining.wait(30) == 0
    # The hub is known from the code, and its key is pinned.
    sent = antiphon(there, "send", "hello from there")
    assert sent.stdout == "You said: hello from there\n", sent.stderr
    assert "hello from there" in antiphon(tmp_path, "--hub-address", here, "log").stdout


def test_a_code_with_another_key_than_the_pinned_one_is_refused(
    ready: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    here, (public,) = ready["hub"]["address"], ready["hub"]["public"]
    there = tmp_path / "there"
    antiphon(tmp_path, "--hub-address", here, "new")
    made = antiphon(tmp_path, "--hub-address", here, "invite", "bob", "--at", public, "--json")
    right = decode_invitation(json.loads(made.stdout)["code"])
    wrong = replace(right, hub_key=PublicKey(b"k" * 32))
    first = antiphon(there, "join", encode_invitation(wrong), "--no-wait")
    assert "PEER_IDENTITY_CHANGED" in first.stderr  # the hub proves another key
    second = antiphon(there, "join", encode_invitation(right), "--no-wait")
    assert "JOIN_PENDING" in second.stderr  # the wrong code has changed nothing
    again = antiphon(there, "join", encode_invitation(wrong), "--no-wait")
    assert "PEER_IDENTITY_CHANGED" in again.stderr  # the right code's key is pinned


def test_an_address_that_can_not_be_served_beside_loopback_is_refused(tmp_path: Path) -> None:
    for address, word in (("0.0.0.0:7411", "7412"), ("127.0.0.1:7500", "--hub-port"), ("x", "x")):
        done = antiphon(tmp_path, "up", "--hub-port", "7411", "--listen", address)
        assert done.returncode == 1
        assert "ARGUMENT_INVALID" in done.stderr
        assert word in done.stderr


def test_one_hub_is_served_by_a_command(tmp_path: Path) -> None:
    flags = ["--data-dir", str(tmp_path / "hub"), "--listen", "127.0.0.1:0,127.0.0.2:0"]
    with forked_antiphon(["hub", "serve", *flags], environment(tmp_path)) as process:
        name, plain, key, public = first_line(process.stdout).split()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert (name, len(key)) == ("hub", 64)
    assert plain.startswith("127.0.0.1:")
    assert public.startswith("127.0.0.2:")
    assert (tmp_path / "hub" / "certificate.pem").is_file()


@pytest.mark.parametrize("daemon", ["hub", "host"])
def test_a_daemon_s_usage_names_the_command_that_was_typed(daemon: str, tmp_path: Path) -> None:
    variables = environment(tmp_path) | {"ANTIPHON_HOST_MODULE": "model_host"}
    with forked_antiphon([daemon, "serve", "--bogus"], variables) as process:
        _, said = process.communicate()
        assert process.wait(30) == 2
    assert said.startswith(f"usage: antiphon {daemon} serve [-h]")
    assert f"\nantiphon {daemon} serve: error: " in said


@pytest.mark.parametrize("daemon", ["hub", "host"])
def test_an_error_behind_the_options_names_the_command_that_was_typed(
    daemon: str, tmp_path: Path
) -> None:
    variables = environment(tmp_path) | {"ANTIPHON_HOST_MODULE": "model_host"}
    options = ["--metrics", "192.0.2.7:1", "--data-dir", str(tmp_path / daemon)]
    with forked_antiphon([daemon, "serve", *options], variables) as process:
        _, said = process.communicate()
        assert process.wait(30) == 1
    assert said.startswith(f"antiphon {daemon} serve: metrics: ")
