"""One daemon as a child process: its log, and its end."""

import asyncio
import signal
import stat
from pathlib import Path

import pytest

from antiphon.daemons import supervisor
from antiphon.daemons.errors import DaemonFailed, HostNotInstalled
from antiphon.daemons.supervisor import Daemon, Supervisor
from replica.io import python
from tests.support.distributions import distribution

READY = "print('hub 127.0.0.1:1', '00' * 32, flush=True)"
UNTIL_THE_END = "import sys; sys.stdin.read()"


def daemon(folder: Path, *code: str) -> Daemon:
    """Return a hub that runs these statements."""
    argv = python("-c", "\n".join(code))
    return Daemon("hub", folder / "logs" / "hub.log", lambda: argv)


async def test_a_daemon_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "STOP_TIMEOUT_S", 0.1)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    one = daemon(tmp_path, deaf, READY, "import time; time.sleep(1_000)")
    await one.start()
    async with asyncio.timeout(20):
        await one.stop()
    assert one.pid is None
    assert await one.wait() == -signal.SIGKILL


async def test_the_log_of_a_daemon_goes_on_behind_its_restart(tmp_path: Path) -> None:
    one = daemon(tmp_path, "import sys; print('started', file=sys.stderr)", READY, UNTIL_THE_END)
    for _ in range(2):
        await one.start()
        await one.stop()
    assert one.log_tail().splitlines() == ["started"] * 2


async def test_the_log_of_a_daemon_is_open_to_this_user_alone(tmp_path: Path) -> None:
    one = daemon(tmp_path, READY, UNTIL_THE_END)
    for mode in (None, 0o644):  # there is none, and one of another program
        if mode is not None:
            one.log_file.chmod(mode)
        await one.start()
        await one.stop()
        assert stat.S_IMODE(one.log_file.stat().st_mode) == 0o600


async def test_a_daemon_that_ends_before_it_is_ready_has_failed(tmp_path: Path) -> None:
    with pytest.raises(DaemonFailed, match="the hub ended with code 3 before it was ready"):
        await daemon(tmp_path, "raise SystemExit(3)").start()


async def test_nothing_is_started_where_packages_of_the_host_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(distribution(tmp_path, 'gone; extra == "host"'))
    with pytest.raises(HostNotInstalled, match="not installed: gone") as refused:
        await Supervisor(tmp_path / "services").__aenter__()
    assert "pip install 'antiphon[host]'" in refused.value.next_step
    assert not (tmp_path / "services").exists()
    Supervisor(tmp_path, host_module="another").check_host()
