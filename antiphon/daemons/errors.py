"""Errors of a hub and a host that run as child processes.

AntiphonError
└── Unavailable
    └── DaemonFailed         a daemon did not start, or keeps ending
        ├── AlreadyRunning   a hub and a host run in this folder already
        ├── HostNotInstalled packages that a model host needs are missing
        └── HostKeyElsewhere the host uses a key the hub does not vouch for
"""

from replica.errors import Unavailable
from replica.io import INSTALL_HOST


class DaemonFailed(Unavailable):
    """A daemon did not start, or ended."""

    reason = "DAEMON_FAILED"
    next_step = "Read the last lines of its log."


class AlreadyRunning(DaemonFailed):
    """A hub and a host run in this folder already."""

    reason = "ALREADY_RUNNING"
    next_step = (
        "Use the ones that run, end that process, or give another folder: `--data-dir` and"
        " `--hub-port`, or `antiphon.local(FOLDER)`."
    )


class HostNotInstalled(DaemonFailed):
    """The model host is not installed."""

    reason = "HOST_NOT_INSTALLED"
    next_step = INSTALL_HOST


class HostKeyElsewhere(DaemonFailed):
    """The host uses a key from another folder, so the hub does not vouch for it."""

    next_step = (
        "Keep identity.key in the host's `--data-dir`, or run both by hand, with `--host-key`."
    )
