"""gRPC at both ends, and the servers of the daemons."""

from replica.io.serving import rpc, status
from replica.io.serving.flags import read_settings
from replica.io.serving.grpc_server import (
    STOP_GRACE_S,
    add_services,
    bounded_server,
    explain,
    listen,
    require_loopback,
    run_until_stopped,
    server_failed,
)
from replica.io.serving.keyless import Keyless
from replica.io.serving.metrics_server import MetricsServer, require_endpoint
from replica.io.serving.next_message import next_message
from replica.io.serving.rpc import now_ms
from replica.io.serving.status import CertificateOutdated, PeerError, error_of
from replica.io.serving.tls_refusals import HubKeyUnknown, require_known_key

__all__ = [
    "STOP_GRACE_S",
    "CertificateOutdated",
    "HubKeyUnknown",
    "Keyless",
    "MetricsServer",
    "PeerError",
    "add_services",
    "bounded_server",
    "error_of",
    "explain",
    "listen",
    "next_message",
    "now_ms",
    "read_settings",
    "require_endpoint",
    "require_known_key",
    "require_loopback",
    "rpc",
    "run_until_stopped",
    "server_failed",
    "status",
]
