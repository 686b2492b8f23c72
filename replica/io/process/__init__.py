"""The process that runs: settings, log, streams, forks, descriptors; tasks and timers."""

from replica.io.process.alarm import Alarm
from replica.io.process.closing import Closing
from replica.io.process.daemon import (
    TYPED_AS,
    stop_signals,
    stop_with_supervisor,
    typed_command,
)
from replica.io.process.descriptors import allow_descriptors, calls_allowed, connections_allowed
from replica.io.process.forked import (
    close_file,
    has_lost_grpc,
    note_grpc,
    own_file,
    own_socket,
    uses_grpc,
)
from replica.io.process.host_packages import INSTALL_HOST, missing_host_packages
from replica.io.process.interpreter import python
from replica.io.process.logger import get_logger
from replica.io.process.logs import LogFormat, configure_log, log_to_stderr
from replica.io.process.opening import Opening
from replica.io.process.repeated import Repeated
from replica.io.process.settings import (
    ConfigInvalid,
    at_home,
    make_settings,
    require_known_variables,
)
from replica.io.process.standard_streams import ReaderGone, guarded_streams
from replica.io.process.to_the_end import look_at, to_the_end
from replica.io.process.waits import Waits
from replica.io.process.worker import Worker

__all__ = [
    "INSTALL_HOST",
    "TYPED_AS",
    "Alarm",
    "Closing",
    "ConfigInvalid",
    "LogFormat",
    "Opening",
    "ReaderGone",
    "Repeated",
    "Waits",
    "Worker",
    "allow_descriptors",
    "at_home",
    "calls_allowed",
    "close_file",
    "configure_log",
    "connections_allowed",
    "get_logger",
    "guarded_streams",
    "has_lost_grpc",
    "log_to_stderr",
    "look_at",
    "make_settings",
    "missing_host_packages",
    "note_grpc",
    "own_file",
    "own_socket",
    "python",
    "require_known_variables",
    "stop_signals",
    "stop_with_supervisor",
    "to_the_end",
    "typed_command",
    "uses_grpc",
]
