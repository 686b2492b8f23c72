"""Logs of a daemon: one line for each event, whatever the values hold."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from replica.io.process.logs import TEXT_MAX, LogFormat, log_to_stderr

ROOT = Path(__file__).parents[4]
FOUL = "first\nsecond\r\x1b[2J\x1b]0;title\x07\x9b31m\u2028line\u202eright-to-left\x00"
log = structlog.get_logger()


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    said = capsys.readouterr()
    assert said.out == ""
    return said.err.split("\n")[:-1]


def record_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (line,) = lines_of(capsys)
    made: dict[str, Any] = json.loads(line)
    return made


def fail() -> None:
    secret = "the contents of a conversation"  # noqa: F841  # tracebacks must not show variables
    raise ValueError(f"bad input: {FOUL}")


def log_a_failure() -> None:
    try:
        fail()
    except ValueError:
        log.exception("a call failed", conversation="ab" * 6)


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_peers_text_begins_no_line_and_controls_no_terminal(
    log_format: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr(log_format)
    log.warning("the hub refused", reason="X", detail=FOUL)
    logging.getLogger("asyncio").error("a task failed: %s", FOUL)
    shown = lines_of(capsys)
    assert len(shown) == 2
    for line in shown:
        assert line.isprintable()


def test_a_traceback_is_indented_and_shows_no_variables(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("console")
    log_a_failure()
    first, *rest = lines_of(capsys)
    assert "a call failed" in first
    assert all(line.startswith("    ") for line in rest)
    assert all(line.isprintable() for line in rest)
    assert "ValueError: bad input: first" in "".join(rest)
    assert not any("the contents" in line and "secret =" not in line for line in rest)


def test_a_traceback_is_one_field_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("json")
    log_a_failure()
    made = record_of(capsys)
    assert (made["event"], made["level"]) == ("a call failed", "error")
    assert made["exception"].startswith("Traceback")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", made["timestamp"])


def test_libraries_log_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("json")
    logging.getLogger("model_host.batching").warning("a step failed", extra={"count": 3})
    made = record_of(capsys)
    made.pop("timestamp")
    assert made == {
        "event": "a step failed", "level": "warning", "count": 3, "library": "model_host.batching",
    }  # fmt: skip


async def test_a_task_that_fails_unseen_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("json")
    try:
        fail()
    except ValueError as error:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "Task exception was never retrieved", "exception": error}
        )
    made = record_of(capsys)
    assert made["library"] == "asyncio"
    assert "ValueError" in made["exception"]


def test_values_of_every_sort_are_written_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("json")
    log.info(
        "x", path=Path("/tmp/x"), entry=b"\x01\xff", count=3, bitwise=True, detail="y" * 5000,
        kind={"a": (1, b"\x02")}, reason=None,
    )  # fmt: skip
    made = record_of(capsys)
    assert (made["path"], made["entry"], made["count"]) == ("/tmp/x", "01ff", 3)
    assert (made["kind"], made["bitwise"], made["reason"]) == ({"a": [1, "02"]}, True, None)
    assert len(made["detail"]) == TEXT_MAX + 1


def test_a_daemon_logs_json_where_stderr_is_no_terminal(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "syncd",
        "--data-dir",
        str(tmp_path),
        "--listen",
        "127.0.0.1:0",
    ]
    for flags, is_json in (([], True), (["--log-format", "console"], False)):
        process = subprocess.Popen(
            [*command, "--metrics", "0", *flags], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | {"ANTIPHON_STOP_AT_EOF": "1"},
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline().startswith("hub ")
        _, err = process.communicate(timeout=30)
        lines = err.splitlines()
        assert len(lines) == 2, err
        if is_json:
            events = [json.loads(line) for line in lines]
            assert [event["event"] for event in events] == ["metrics ready", "hub ready"]
            assert len(events[1]["key"]) == 12
        else:
            assert "hub ready" in lines[1]
            assert not lines[1].startswith("{")


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "syncd", "--data-dir", str(tmp_path), "--log-format", "xml"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "--log-format" in ended.stderr


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_line_is_one_write_so_that_lines_of_threads_do_not_mix(
    log_format: LogFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(sys.stderr, "write", written.append)
    log_to_stderr(log_format)
    log.info("template", local=False)
    logging.getLogger("library").info("weights cache missing")
    assert len(written) == 2
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in written)
