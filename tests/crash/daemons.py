"""A hub and a host as daemons of a folder, for tests that kill them.

Both are forked: a host that is killed after each token would import torch after each.
"""

from pathlib import Path

from antiphon.daemons import Daemon
from tests.support.forked import Forks
from tests.support.forked_program import ForkedDaemon

FORKS = Forks(
    "model_host.engine.torch_engine", "model_host.io.command", "model_host.io.server", "syncd.io"
)


class _ForkedDaemon(ForkedDaemon):
    """A daemon that is forked from a process which has imported torch."""

    forks = FORKS


def hub_daemon(folder: Path, listen: str = "127.0.0.1:0") -> Daemon:
    argv = ["syncd", "--data-dir", str(folder / "hub"), "--listen", listen]
    return _ForkedDaemon("hub", folder / "hub.log", lambda: argv)


def host_daemon(folder: Path, hub: str) -> Daemon:
    flags = ["--data-dir", str(folder / "host"), "--hub", hub, "--context-tokens", "1024"]
    argv = ["model_host", "serve", *flags]
    return _ForkedDaemon("host", folder / "host.log", lambda: argv)
