"""A hub and a host as daemons of a folder, for tests that kill them."""

import sys
from pathlib import Path

from antiphon.cli.supervisor import Daemon


def hub_daemon(folder: Path, listen: str = "127.0.0.1:0") -> Daemon:
    data_dir = str(folder / "hub")
    argv = [sys.executable, "-m", "syncd", "--data-dir", data_dir, "--listen", listen]
    return Daemon("hub", folder / "hub.log", lambda: argv)


def host_daemon(folder: Path, hub: str) -> Daemon:
    flags = ["--data-dir", str(folder / "host"), "--hub", hub, "--context-tokens", "1024"]
    argv = [sys.executable, "-m", "model_host", "serve", *flags]
    return Daemon("host", folder / "host.log", lambda: argv)
