"""A hub and a model host as child processes, for the command and the library."""

from antiphon.daemons.errors import DaemonFailed
from antiphon.daemons.services_lock import DAEMONS, LOCK_FILE, services_lock
from antiphon.daemons.supervisor import HOST_MODULE, Daemon, Supervisor

__all__ = [
    "DAEMONS",
    "HOST_MODULE",
    "LOCK_FILE",
    "Daemon",
    "DaemonFailed",
    "Supervisor",
    "services_lock",
]
