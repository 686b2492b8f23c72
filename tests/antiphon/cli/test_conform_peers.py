"""The commands of the kit for hubs, hosts and clients: lists, reports, exit status."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from antiphon.cli.commands import conform_report
from antiphon.cli.main import app
from antiphon.conformance.io import process
from syncd.io.config import HubConfig
from syncd.io.server import start


async def conform(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, ["conform", *arguments])


async def test_divergences_are_listed_and_played(tmp_path: Path) -> None:
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    found = tmp_path / "report.json"
    listed = await conform("divergence", hub.address, "--list")
    assert "divergence/lane-fork  REC-3 REC-4 LINK-12  Fork a lane" in listed.output
    options = ("--only", "lane-fork", "--json", str(found))
    first = await conform("divergence", hub.address, *options)
    assert first.exit_code == 0, first.output
    assert json.loads(found.read_text())["requirements"]["REC-3"]["passed"] == 1
    again = await conform("divergence", hub.address, *options)
    assert again.exit_code == 1
    assert "REC-3" in again.output and "--seed" in again.output
    await hub.stop()


async def test_cases_of_hosts_and_replays_are_listed() -> None:
    listed = await conform("host", "127.0.0.1:1", "--list", "--only", "seals/")
    assert "seals/first-turn  ORD-7" in listed.output
    assert "refusals/" not in listed.output
    assert "replay/smollm2-q4/verify" in (await conform("replay", "--list")).output


async def test_a_wrong_key_is_wrong_usage(tmp_path: Path) -> None:
    assert (await conform("host", "127.0.0.1:1", "--host", "no key")).exit_code == 2
    absent = tmp_path / "absent.key"
    assert (await conform("host", "127.0.0.1:1", "--key", str(absent))).exit_code == 2
    assert not absent.exists()


@pytest.mark.parametrize("suite", ["host", "replay", "divergence"])
async def test_no_case_fails_for_an_absent_hub(suite: str) -> None:
    away = await conform(suite, "127.0.0.1:1")
    assert away.exit_code == 2
    assert "HUB_UNREACHABLE" in away.output and "FAILED" not in away.output
    unnamed = await conform(suite)
    assert unnamed.exit_code == 2
    assert "name the hub to check" in " ".join(unnamed.output.split())


async def test_a_silent_client_is_left_and_told_of_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "ANSWER_SECONDS_MAX", 0.5)
    monkeypatch.setattr(conform_report, "TELLING_S", 0.1)
    silent = (sys.executable, "-c", "import time; time.sleep(600)")
    result = await conform("client", "--jobs", "2", "--", *silent)
    assert result.exit_code == 1
    assert "0 of " in result.stderr and " cases done" in result.stderr
    assert "the command gave no answer at all within 0.5 s" in result.stdout


IDLE_S = 12
"""When our client takes a hub for gone: longer than any hub of another case is silent."""
HASTY = f"""
import runpy
from replica import limits
limits.IDLE_TIMEOUT_S = {IDLE_S}
runpy.run_module("antiphon.conformance.io.adapter", run_name="__main__")
"""
OURS = (sys.executable, "-c", HASTY)


async def test_our_own_client_passes_as_processes(tmp_path: Path) -> None:
    # It takes twenty seconds: a client may compare 5 s after a loss, and one hub is silent.
    found = tmp_path / "report.json"
    result = await conform("client", "--jobs", "3", "--json", str(found), "--", *OURS)
    assert result.exit_code == 0, result.output
    stated = json.loads(found.read_text())
    assert stated["failed"] == [] and stated["not_run"] == {}
    assert stated["cases"] >= 40


async def test_a_client_that_answers_nonsense_fails_and_an_absent_one_is_wrong_usage() -> None:
    silent = (sys.executable, "-c", "print(input())")
    wrong = await conform("client", "--only", "links/greeting", "--jobs", "1", "--", *silent)
    assert wrong.exit_code == 1
    assert "LINK-3" in wrong.output
    for command in ((), ("--", "/does/not/exist")):
        assert (await conform("client", *command)).exit_code == 2
    assert "entries/late-ack  LINK-15" in (await conform("client", "--list")).output
