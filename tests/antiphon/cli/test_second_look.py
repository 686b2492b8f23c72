"""A hub that drops what it acked, or keeps back what it has, is found by another path."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from replica.io.driver import second_look
from replica.link.hub_side import HubSide
from replica.link.messages import Opened
from replica.log.kinds import Kind
from tests.antiphon.cli.conftest import Terminal, World
from tests.antiphon.cli.test_two_members import clone_to

pytestmark = pytest.mark.usefixtures("short_waits")


def members(world: World, *names: str) -> list[Terminal]:
    """Return the replicas of an owner and of writers of one conversation."""
    owner, *writers = [world.replica(name) for name in names]
    grants = [f"{writer.record('key', 'show')['key']}:writer" for writer in writers]
    owner.ok("new", *(word for grant in grants for word in ("--member", grant)))
    owner.ok("send", "hello")
    for writer in writers:
        clone_to(owner, writer)
    return [owner, *writers]


def pair(world: World) -> list[Terminal]:
    return members(world, "ada", "bob")


def repeat_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hub repeat the digest of every replica that has anything, and send it nothing."""
    answer = HubSide._answer

    def lie(side, channel, held, message, out):  # type: ignore[no-untyped-def]
        if not message.heads and message.digest != held.log.digest:
            empty = type(held)(held.id).log.digest
            if message.digest != empty:
                channel.is_open = True
                side._send(Opened(held.id, message.digest, True, None, message.number), out)
                return
        answer(side, channel, held, message, out)

    monkeypatch.setattr(HubSide, "_answer", lie)


def test_an_honest_hub_sends_everyone_the_same(world: World):
    ada, bob = pair(world)
    for member in (ada, bob):
        member.ok("status")
        found = member.record("verify", "--hub")
        assert (found["ok"], found["bad"]) == (True, [])
        assert found["digest"] == member.record("verify")["digest"]
    assert ada.ok("verify", "--hub").startswith("ok")


def test_entries_that_the_hub_keeps_back_are_named(world: World, monkeypatch: pytest.MonkeyPatch):
    ada, bob = pair(world)
    bob.ok("send", "not for Ada", "--no-request")
    repeat_digests(monkeypatch)
    assert ada.record("status")["conversations"][0]["state"] == "synchronized"
    assert ada.refused("verify", "--hub") == "CHECKS_FAILED"
    shown = ada.run("verify", "--hub")
    assert "kept back from this one" in shown.stdout
    assert "not to be trusted" in shown.stderr
    assert "not for Ada" not in ada.ok("log")
    monkeypatch.undo()
    assert "not for Ada" in ada.ok("log")
    assert ada.record("verify", "--hub")["ok"]


def test_an_import_says_what_the_hub_kept_back(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    ada, bob = pair(world)
    bob.ok("send", "not for Ada", "--no-request")
    first, second = str(tmp_path / "bob.bundle"), str(tmp_path / "ada.bundle")
    chosen = bob.records("list")[0]["conversation"]
    bob.ok("export", chosen, first)
    repeat_digests(monkeypatch)
    copy = world.replica("copy")
    shutil.copytree(ada.data_dir, copy.data_dir)
    assert "did not send them here" in copy.run("import", first).stderr
    assert ada.record("import", first)["kept_back"] == 1
    monkeypatch.undo()
    ada.ok("send", "all is here", "--no-request")
    ada.ok("export", chosen, second)
    assert bob.record("import", second)["kept_back"] == 0, "it comes over the link as well"


def test_entries_that_the_hub_dropped_are_named(world: World, monkeypatch: pytest.MonkeyPatch):
    ada, _ = pair(world)
    world.stop_host()
    world.stop_hub()
    hub, before = world.folder / "hub", world.folder / "before"
    shutil.copytree(hub, before)
    world.start_hub()
    ada.ok("send", "acked and dropped", "--no-request")
    world.stop_hub()
    shutil.rmtree(hub)
    shutil.copytree(before, hub)
    world.start_hub()
    repeat_digests(monkeypatch)
    shown = ada.run("verify", "--hub")
    assert shown.exit_code == 1
    assert "does not send it whole to a new replica" in shown.stdout
    monkeypatch.undo()
    ada.ok("status")
    assert ada.record("verify", "--hub")["ok"], "an honest hub is sent it again"


def test_a_link_that_is_lost_meanwhile_accuses_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    ada, bob = pair(world)
    looks = second_look._differences
    once = [lambda: bob.ok("send", "while a link is lost", "--no-request")]

    async def lose(replica, fresh, *more):  # type: ignore[no-untyped-def]
        if once:
            await replica._link.stop()
            await asyncio.to_thread(once.pop())
            found = await looks(replica, fresh, *more)
            assert found.kept_back
            replica._link.start(lambda: False)
            return found
        return await looks(replica, fresh, *more)

    monkeypatch.setattr(second_look, "_differences", lose)
    result = ada.run("verify", "--hub")
    assert "not to be trusted" not in result.stderr
    assert not once


def test_a_body_that_the_hub_does_not_send_is_named(world: World, monkeypatch: pytest.MonkeyPatch):
    ada, _ = pair(world)

    async def strip(replica, fresh, conversation, timeout_s):  # type: ignore[no-untyped-def]
        entries = fresh.shelf[conversation].log.entries
        last = next(e for e in entries.values() if e.header.kind == Kind.MESSAGE)
        entries[last.id] = replace(last, body=None)
        return await second_look.look_again(replica, fresh, conversation, timeout_s)

    monkeypatch.setattr("antiphon.cli.commands.second_look.look_again", strip)
    assert "does not send it whole" in ada.run("verify", "--hub").stdout


def test_an_entry_that_is_not_covered_was_not_kept_back(world: World, tmp_path: Path):
    ada, bob, carol = members(world, "ada", "bob", "carol")
    world.stop_host()
    world.stop_hub()
    ada.ok("members", "remove", bob.record("key", "show")["key"], "--yes")
    world.start_hub()
    bob.ok("send", "late", "--no-request")
    file = str(tmp_path / "bob.bundle")
    bob.ok("export", bob.records("list")[0]["conversation"], file)
    ada.ok("status")
    carol.ok("status")
    assert carol.record("import", file)["kept_back"] == 0


def test_leftovers_of_a_killed_comparison_are_removed(world: World):
    ada, _ = pair(world)
    left = ada.data_dir / "second-look-4194303-x"
    left.mkdir()
    (left / "log.db").touch()
    ada.ok("verify", "--hub")
    assert not list(ada.data_dir.glob("second-look-*"))


def test_a_comparison_of_nothing_makes_no_folder(world: World):
    nobody = world.replica("nobody")
    assert nobody.refused("verify", "--hub") == "NO_CONVERSATION"
    assert not nobody.data_dir.exists()


def test_a_comparison_needs_the_hub(world: World):
    ada, _ = pair(world)
    assert ada.refused("verify", "--hub", "--all", code=2) == "USAGE_INVALID"
    world.stop_host()
    world.stop_hub()
    assert ada.refused("verify", "--hub") == "HUB_UNREACHABLE"
