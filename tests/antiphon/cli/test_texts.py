"""Texts that say what is the case: counts, errors with their own next step, one error style."""

import os
import re

import pytest
import typer.main
from typer.testing import CliRunner

from antiphon.cli.main import app
from antiphon.daemons import services_lock
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.processes import antiphon
from tests.antiphon.cli.test_two_members import Gate, gate, pair

__all__ = ["gate"]


def test_restoring_over_another_key_says_that_it_is_another(world: World, me: Terminal) -> None:
    backup = str(world.folder / "key.pem")
    me.ok("key", "show")
    me.ok("key", "backup", backup)
    other = world.replica("other")
    other.ok("key", "show")
    result = other.run("key", "restore", backup)
    assert result.exit_code == 1
    assert "holds another key" in result.stderr
    assert "A key that is there is never replaced." in result.stderr
    assert "Move that key file away" in result.stderr
    assert "damaged" not in result.stderr


def test_an_import_counts_the_entries_of_the_file_and_the_new_ones(
    world: World, me: Terminal
) -> None:
    me.ok("new")
    bundle = str(world.folder / "early.bundle")
    chosen = me.records("list")[0]["conversation"]
    me.ok("export", chosen, bundle)
    count = len(me.records("log"))
    me.ok("send", "more entries")
    assert f"{count} entries verified, 0 of them new here" in me.run("import", bundle).stderr
    other = world.replica("other")
    assert f"{count} entries verified, {count} of them new" in other.run("import", bundle).stderr


def test_a_refusal_is_written_out_below_the_table(world: World) -> None:
    ada, bob = pair(world)
    bob.ok("status")
    ada.ok("delete", "--hub", "--yes")
    result = bob.run("status")
    assert "refused" in result.stdout
    assert "CONVERSATION_DELETED" in result.stderr
    assert "…" not in result.stdout


def test_whose_answer_is_under_way_and_who_is_next_is_in_the_status(gate: Gate) -> None:
    ada, bob = pair(gate.world)
    ada.ok("send", "first", "--no-wait")
    gate.wait()
    bob.ok("send", "second", "--no-wait")
    result = ada.run("status")
    key = bob.record("key", "show")["key"]
    assert f"answering you, next {key[:6]}" in result.stderr
    assert len(ada.record("status")["conversations"][0]["waiting"]) == 2


COMMANDS = {"key", "log", "new", "pages", "replay", "send", "verify"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["send", "--nope"], ["frob"], ["new", "--temperature", "warm"], ["log", "a", "b", "c"],
        ["send", "--at"], ["pages", "show", "--seal"], ["key", "--nope"], ["--config"],
        ["new", "--no-host", "--host", "ab" * 32], ["verify", "--hub", "--all"],
        ["verify", "--hub", "--bundle", "file"], ["replay", "--check", "a", "--receipt", "b"],
        ["log", "--graph", "--all"], ["log", "--graph", "--after", "ab"],
    ],
)  # fmt: skip
def test_wrong_usage_is_reported_like_every_other_error(me: Terminal, arguments: list[str]) -> None:
    result = me.run(*arguments)
    assert result.exit_code == 2
    first, why, step, reason = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert why.startswith("  why     ")
    is_command, is_below = arguments[0] in COMMANDS, arguments[0] == "pages"
    path = ["antiphon", *arguments[: is_command + is_below]]
    assert step == f"  next    `{' '.join(path)} --help` shows its arguments and options."
    assert reason == "  reason  USAGE_INVALID"


def test_a_replica_without_conversations_says_so_in_one_way(me: Terminal) -> None:
    for command in (["log"], ["send", "hello"], ["members", "list"], ["verify"], ["cancel"]):
        told = me.run(*command).stderr
        assert told.startswith("error: no conversation is held here yet\n"), command


def test_one_of_a_kind_is_no_several(world: World, me: Terminal) -> None:
    conversation = me.record("new")["conversation"]
    me.ok("send", "hello")
    bundle = str(world.folder / "bundle")
    assert "  6 entries, 0 blobs, " in me.ok("export", conversation, bundle)
    assert ": 6 entries, 1 seal, 0 bad;" in me.run("import", "--read-only", bundle).stderr


def test_the_help_names_only_options_that_the_command_has() -> None:
    root, of_others = typer.main.get_command(app), set()
    for name, command in root.commands.items():  # type: ignore[attr-defined]  # a group
        own = {
            option for param in command.params for option in (*param.opts, *param.secondary_opts)
        }
        for param in command.params:
            named = set(re.findall(r"--[a-z-]+", getattr(param, "help", None) or ""))
            of_others |= {(name, param.name, option) for option in named - own}
    assert of_others == set()


def test_the_log_shows_words_as_text_and_every_kind_as_json(me: Terminal) -> None:
    me.ok("new", "--system", "Be brief.")
    me.ok("send", "hello")
    kinds = [one["kind"] for one in me.records("log")]
    assert {"genesis", "member", "request", "seal"} < {*kinds}
    assert me.records("log", "--all") == me.records("log")
    shown = [line.split()[1] for line in me.ok("log", "--all").splitlines()]
    assert shown == ["system", "you", "model"]


def test_json_before_the_command_is_told_where_it_goes(me: Terminal) -> None:
    told = me.run("--json", "list").stderr
    assert "  next    It goes behind the command: `antiphon list --json`." in told
    assert me.run("list", "--json").exit_code == 0


def test_no_help_shows_what_is_not_meant_for_people() -> None:
    root = typer.main.get_command(app)
    runner, seen = CliRunner(), 0
    for name, command in root.commands.items():  # type: ignore[attr-defined]  # a group
        nested = [[name, sub] for sub in getattr(command, "commands", {})]
        for path in [[name], *nested]:
            shown = runner.invoke(app, [*path, "-h"]).output  # --help of serve is the daemon's
            assert "Pydantic" not in shown
            assert "Undefined" not in shown
            assert "<bool>" not in shown  # a flag has no value
            seen += 1
    assert seen > 25


def test_a_second_up_names_the_first(world: World) -> None:
    folder = world.folder / "services"
    with services_lock(folder):
        result = antiphon(folder, "up", "--data-dir", str(folder))
    assert result.returncode == 1
    assert "ALREADY_RUNNING" in result.stderr
    assert f"pid {os.getpid()}" in result.stderr


def test_what_was_written_apart_is_queued_and_nothing_is_hidden(world: World) -> None:
    ada, bob = pair(world)
    bob.ok("status")
    world.stop_hub()
    ada.ok("send", "one")
    ada.ok("send", "two")
    bob.ok("send", "three")
    world.start_hub()
    for _ in range(3):
        ada.ok("status")
        bob.ok("status")
    assert ada.ok("send", "four", "--wait") == "You said: four\n"
    bob.ok("status")
    for member in (ada, bob):
        said = [line[20:] for line in member.ok("log").splitlines()]
        assert {"one", "two", "three", "four"} <= set(said)
        assert member.record("status")["conversations"][0]["branches"] == 1


def test_a_branch_that_arises_is_shown(me: Terminal) -> None:
    me.ok("new")
    first = me.record("send", "hello")
    me.ok("send", "other", "--at", first["message"])
    assert "1 other branch; next: antiphon branches" in me.run("log").stderr
    graph = me.run("log", "--graph")
    assert "2 branches" in graph.stderr
    assert "the next message follows" in graph.stderr
    rows = me.ok("branches").splitlines()
    assert [row.split()[-1] for row in rows] == ["message", "hello", "other"]
    digits = rows[1].split()[0]
    me.ok("switch", digits)
    assert me.ok("branches").splitlines()[1].startswith("*")
    assert me.refused("switch", "nowhere") == "BRANCH_UNKNOWN"
