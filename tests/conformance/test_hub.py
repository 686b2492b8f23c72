"""Our own hub passes the kit, killed and started again meanwhile, with no case left out."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from antiphon.conformance.io.hub import TABLE, HubRun, Scale, judge_hub
from antiphon.conformance.report import failed, not_run
from antiphon.conformance.writers import Writer
from tests.conformance.small_hub import SCALE, TICKET_S

VOUCHED = Writer(b"vouched")


class HubProcess:
    """A hub as a process of its own, on one port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, "127.0.0.1:0"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        command = [
            sys.executable, "-m", "tests.conformance.small_hub", "--data-dir", str(self.folder),
            "--listen", self.address, "--host-key", VOUCHED.public.hex(),
        ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        assert ready[:1] == ["hub"], "the hub did not start"
        self.address = ready[1]
        return process

    async def restart(self) -> None:
        """Kill it as a power loss of the process would, and start it again."""
        self.end(signal.SIGKILL)
        self.process = await asyncio.to_thread(self._start)

    def end(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.communicate(timeout=20)


@contextmanager
def hub_process(folder: Path) -> Iterator[HubProcess]:
    hub = HubProcess(folder)
    try:
        yield hub
    finally:
        hub.end()


@pytest.mark.timeout(90)
async def test_our_hub_passes_every_case(tmp_path: Path) -> None:
    with hub_process(tmp_path / "hub") as hub:
        run = HubRun(hub.address, hub.restart, VOUCHED, wait_s=TICKET_S + 5, scale=Scale(**SCALE))
        outcomes = await judge_hub(run, TABLE)
    assert [(o.case.name, o.problems) for o in failed(outcomes)] == []
    assert [(o.case.name, o.not_run) for o in not_run(outcomes)] == []
    assert len(outcomes) > 100
