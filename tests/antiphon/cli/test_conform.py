"""`antiphon conform`: our own core passes, a wrong one fails, a hub is checked; with reports."""

import json
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from antiphon.cli.commands.conform_report import finish
from antiphon.cli.main import app
from antiphon.conformance.io import core as io_core
from antiphon.conformance.questions import Case
from antiphon.conformance.report import Outcome
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.background import Background

OURS = [sys.executable, "-m", "antiphon.conformance"]
WRONG = [
    sys.executable,
    "-c",
    "for line in __import__('sys').stdin: print(line, end='', flush=True)",
]


def conform(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["conform", "core", *arguments])


def test_our_own_core_passes_as_a_process(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    result = conform("--logs", "1", "--json", str(report), "--", *OURS)
    assert result.exit_code == 0, result.output
    found = json.loads(report.read_text())
    assert found["failed"] == []
    assert found["cases"] > 900
    assert all(counts["failed"] == 0 for counts in found["requirements"].values())


def test_a_wrong_core_fails_with_its_requirements(tmp_path: Path) -> None:
    page, junit = tmp_path / "report.html", tmp_path / "report.xml"
    only = ("--only", "digest/", "--logs", "0")
    result = conform(*only, "--html", str(page), "--junit", str(junit), "--", *WRONG)
    assert result.exit_code == 1
    assert "ORD-14" in result.output and "5 of 5 FAILED" in result.output
    assert "ORD-14" in page.read_text() and "ORD-14" in junit.read_text()


def test_what_a_core_that_ends_has_answered_is_reported(tmp_path: Path) -> None:
    ends = [sys.executable, "-c", "input()"]
    report = tmp_path / "report.json"
    result = conform("--logs", "0", "--json", str(report), "--", *ends)
    assert result.exit_code == 1
    assert "USAGE_INVALID" not in result.output
    assert "the command ended, or wrote no answer, 20 times" in result.output
    found = json.loads(report.read_text())
    assert len(found["failed"]) == 20
    assert len(found["not_run"]) == found["cases"] - 20


ESCAPES = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"number": json.loads(line)["number"], "digest": "\\x1b[2J"}), flush=True)
"""


def test_each_failed_question_is_written_with_its_answer(tmp_path: Path) -> None:
    failed = tmp_path / "failed.jsonl"
    core = [sys.executable, "-c", ESCAPES]
    conform("--only", "digest/", "--logs", "0", "--failed", str(failed), "--", *core)
    lines = [json.loads(line) for line in failed.read_text().splitlines()]
    assert [line["question"]["ask"] for line in lines] == ["digest"] * 5
    assert {line["answer"]["digest"] for line in lines} == {"\x1b[2J"}
    assert all(line["expected"]["digest"] for line in lines)


def test_control_characters_of_others_are_shown_as_symbols(
    capsys: pytest.CaptureFixture[str],
) -> None:
    case = Case("hub/case", ("LINK-1",), {}, {})
    with pytest.raises(typer.Exit):
        finish([Outcome(case, ("a detail \x1b[2J",))], None, None, None)
    assert "a detail ␛[2J" in capsys.readouterr().out


def test_cases_are_listed_and_left_out() -> None:
    listed = conform("--list", "--logs", "0").output
    assert "digest/sorted  ORD-14" in listed
    assert "digest/sorted" not in conform("--list", "--logs", "0", "--without", "digest").output


def test_an_unknown_kind_of_question_to_leave_out_is_wrong_usage() -> None:
    result = conform("--without", "project,canonical", "--logs", "0", "--", *OURS)
    assert result.exit_code == 2
    words = " ".join(result.output.replace("│", " ").split())
    assert "'project,canonical': no kind of question; give --without once for each of" in words


def test_a_run_without_a_case_is_wrong_usage() -> None:
    result = conform("--only", "NOPE-1", "--logs", "0", "--", *OURS)
    assert result.exit_code == 2
    assert "no case is named 'NOPE-1'" in result.output


def test_a_copy_without_vectors_passes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io_core, "VECTORS", tmp_path)
    result = conform("--logs", "1", "--", *OURS)
    assert result.exit_code == 2
    assert "no vector files" in result.output


@pytest.mark.parametrize("command", [(), ("--", "/does/not/exist")])
def test_a_command_that_cannot_be_started_is_wrong_usage(command: tuple[str, ...]) -> None:
    assert conform("--logs", "0", *command).exit_code == 2


def test_a_report_that_cannot_be_written_is_an_error_after_the_one_for_people(
    tmp_path: Path,
) -> None:
    only = ("--only", "digest/", "--logs", "0", "--json", str(tmp_path / "absent" / "r.json"))
    result = conform(*only, "--", *OURS)
    assert result.exit_code == 2
    assert "5 cases" in result.stdout
    assert "FILE_UNUSABLE" in result.output and "r.json: No such file" in result.output


# --- conform hub ---------------------------------------------------------------------------


def conform_hub(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["conform", "hub", *arguments])


def test_the_cases_for_a_hub_are_listed_with_what_they_need() -> None:
    lines = conform_hub("--list").output.splitlines()
    assert len(lines) > 100
    assert any("PROM-3 LINK-15 LINK-24" in line and line.endswith("--restart") for line in lines)
    only = conform_hub("--list", "--only", "LINK-82").output.splitlines()
    (name, requirement, _, option) = only[0].split("  ")
    assert (len(only), requirement, option) == (1, "LINK-82", "--wait")
    assert name == "watching/a-keepalive-every-10-s-is-permitted"


@pytest.mark.parametrize("address", [(), ("hub.example:7411",), ("127.0.0.1:1",)])
def test_a_hub_that_cannot_be_reached_is_wrong_usage(address: tuple[str, ...]) -> None:
    result = conform_hub(*address)
    assert result.exit_code == 2, result.output


def test_a_hub_is_checked_and_what_was_not_run_has_its_reason(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with Background() as loop:
        hub = loop.run(start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0")))
        try:
            result = conform_hub(hub.address, "--only", "PROM-3", "--json", str(report))
            failing = conform_hub(hub.address, "--only", "PROM-3", "--restart", "false")
        finally:
            loop.run(hub.stop())
    assert result.exit_code == 0, result.output
    assert "PROM-3           0  not applicable (2 not run: no way to kill" in result.output
    found = json.loads(report.read_text())
    assert found["requirements"]["PROM-3"]["verdict"] == "not applicable"
    assert failing.exit_code == 1
    assert "the restart command ended with status 1" in failing.output
