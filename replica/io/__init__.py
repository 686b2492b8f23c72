"""A replica's drivers: store, hub link, calls, keys, daemons. The rest of replica/ is pure."""

from replica.io import keys, rpc, status, turns
from replica.io.blobs import Blobs
from replica.io.daemon import log_to_stderr, stop_with_supervisor
from replica.io.disk import FILE_MODE, make_folder, sync_folder, typed_errors
from replica.io.fetch import fetch_missing, import_entries
from replica.io.grpc_server import STOP_GRACE_S, add_health, explain, listen, run_until_stopped
from replica.io.host_calls import HostCalls
from replica.io.hub_calls import HubCalls
from replica.io.keys import load_or_create, load_or_create_secret, public
from replica.io.performer import Performer
from replica.io.readonly import open_read_only
from replica.io.replica import Replica
from replica.io.rpc import now_ms
from replica.io.saved_acks import SavedAcks
from replica.io.status import PeerError, error_of
from replica.io.store import Store
from replica.io.turns import (
    Asked,
    Delta,
    Discarded,
    Finished,
    LinkBack,
    LinkLost,
    Prefilling,
    RequestOptions,
    TurnEvent,
    choose_host,
    say_as_system,
)

__all__ = [
    "FILE_MODE",
    "STOP_GRACE_S",
    "Asked",
    "Blobs",
    "Delta",
    "Discarded",
    "Finished",
    "HostCalls",
    "HubCalls",
    "LinkBack",
    "LinkLost",
    "PeerError",
    "Performer",
    "Prefilling",
    "Replica",
    "RequestOptions",
    "SavedAcks",
    "Store",
    "TurnEvent",
    "add_health",
    "choose_host",
    "error_of",
    "explain",
    "fetch_missing",
    "import_entries",
    "keys",
    "listen",
    "load_or_create",
    "load_or_create_secret",
    "log_to_stderr",
    "make_folder",
    "now_ms",
    "open_read_only",
    "public",
    "rpc",
    "run_until_stopped",
    "say_as_system",
    "status",
    "stop_with_supervisor",
    "sync_folder",
    "turns",
    "typed_errors",
]
