"""The command and its daemons as separate processes, and the command alone in this one."""

import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from typer.testing import CliRunner

from antiphon.cli.main import app
from tests.support.forked_program import PROGRAMS, ForkedProgram

HOST_MODULE = "tests.support.scripted_host"
ANTIPHON = [sys.executable, "-m", "antiphon.cli.main"]
ROOT = Path(__file__).parents[3]


def environment(folder: Path) -> dict[str, str]:
    """Return an environment without the user's files and settings."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").touch()
    return {
        **os.environ,
        "ANTIPHON_DATA_DIR": str(folder / "replica"),
        "ANTIPHON_SERVICES_DIR": str(folder),
        "ANTIPHON_HOST_MODULE": HOST_MODULE,
        "ANTIPHON_CONFIG": str(folder / "config.toml"),
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
    }


def antiphon(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in this process, which saves a second for its imports."""
    done = CliRunner().invoke(app, arguments, env=environment(folder))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def forked_antiphon(arguments: Sequence[str], variables: Mapping[str, str]) -> ForkedProgram:
    """Start the command in a separate process, which is forked."""
    return ForkedProgram(PROGRAMS, ["antiphon", *arguments], variables)


def antiphon_process(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in a separate process to its end."""
    with forked_antiphon(arguments, environment(folder)) as process:
        shown, said = process.communicate()
        return subprocess.CompletedProcess(arguments, process.wait(), shown, said)


def first_line(stream: "IO[str] | None") -> str:
    assert stream is not None
    return stream.readline()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def serves(address: str) -> bool:
    """Say whether a daemon is past its ready line and answers."""
    with grpc.insecure_channel(address) as channel:
        asking = health_pb2_grpc.HealthStub(channel).Check
        found = asking(health_pb2.HealthCheckRequest(), timeout=30, wait_for_ready=True)
    return bool(found.status == health_pb2.HealthCheckResponse.SERVING)


def exits_within(pid: int, timeout_s: float) -> bool:
    """Wait for the end of a process, which may be no child of ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)
