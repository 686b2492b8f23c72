"""A replica's drivers: store, hub link, calls, keys, daemons. The rest of replica/ is pure."""

import replica.io.forked  # noqa: F401  # it comes before gRPC
from replica.io import answers, begin, cancels, documents, keys, petnames, rpc, status, turns
from replica.io.answer_errors import AnswerOverdue
from replica.io.answers import (
    Asked,
    Delta,
    Discarded,
    Finished,
    LinkBack,
    LinkLost,
    NotStored,
    NotTaken,
    Prefilling,
    TurnEvent,
)
from replica.io.asked_host import HostMissing, choose_host
from replica.io.awaited_host import AwaitedHost
from replica.io.blob_calls import BlobCalls
from replica.io.blob_files import BlobState, pieces_of
from replica.io.blob_tally import BlobQuota
from replica.io.blob_writer import BlobWriter
from replica.io.blobs import Blobs
from replica.io.certificate import CertificateFile
from replica.io.daemon import stop_with_supervisor
from replica.io.descriptors import allow_descriptors, calls_allowed
from replica.io.disk import FILE_MODE, make_folder, replacing, sync_folder, typed_errors
from replica.io.expiring_blobs import ExpiringBlobs
from replica.io.fetch import fetch_missing, import_entries
from replica.io.flags import read_settings
from replica.io.folder_use import FolderTaken, FolderUse, take_folder, use_of
from replica.io.forked import close_file, has_lost_grpc, own_file, uses_grpc
from replica.io.grpc_server import (
    STOP_GRACE_S,
    add_services,
    bounded_server,
    explain,
    listen,
    require_loopback,
    run_until_stopped,
    server_failed,
)
from replica.io.host_calls import ArchiveTooLarge, HostCalls, HostUnreachable
from replica.io.host_packages import INSTALL_HOST, missing_host_packages
from replica.io.host_views import ContextPages, HostSample, PagedEntry, RunningRequest
from replica.io.hub_calls import HubCalls, pin, pinned_key
from replica.io.hub_channel import open_channel
from replica.io.hub_status import HubStatus, means_away
from replica.io.interpreter import python
from replica.io.invitations import (
    Joined,
    Redeeming,
    invite,
    revoke_invitation,
    void_invitations,
)
from replica.io.issued_invitations import current_invitation, issued_invitations
from replica.io.joining import (
    await_grant,
    check_folder,
    check_usable,
    has_joined,
    require_link,
    save_hub,
    saved_hub,
)
from replica.io.key_refusals import KeyFileGone, SecretInvalid
from replica.io.keyless import Keyless
from replica.io.keys import load_or_begin, load_or_create, load_or_create_secret
from replica.io.linked_hosts import hosts_of, linked_hosts
from replica.io.listing import hear_list, listed
from replica.io.local_frames import WriteUnconfirmed
from replica.io.logger import get_logger
from replica.io.logs import LogFormat, configure_log, log_to_stderr
from replica.io.long_logs import restored
from replica.io.metrics_server import MetricsServer, require_endpoint
from replica.io.next_message import next_message
from replica.io.opening import Opening
from replica.io.own_key import key_before, note_own_key, own_key_of
from replica.io.pending_joins import PendingJoin, forget_answered, pending_joins
from replica.io.performer import Performer
from replica.io.processes import LOOK_AGAIN_S
from replica.io.readonly import open_read_only
from replica.io.repeated import Repeated
from replica.io.replays import (
    ReplayEvent,
    ReplayProgress,
    decode_receipt,
    encode_receipt,
    event_to_pb,
)
from replica.io.replica import Replica
from replica.io.rpc import now_ms
from replica.io.salvage import StoreRepair, repair_store
from replica.io.saved_acks import SavedAcks
from replica.io.saved_endings import SavedEndings
from replica.io.second_look import SecondLook, held_at_hub, look_again
from replica.io.settings import ConfigInvalid, at_home, make_settings
from replica.io.standard_streams import ReaderGone, guarded_streams
from replica.io.status import PeerError, error_of
from replica.io.store import Store
from replica.io.store_lock import require_free
from replica.io.tail import require_content
from replica.io.tls_refusals import HubKeyUnknown, require_known_key
from replica.io.to_the_end import look_at, to_the_end
from replica.io.turns import RequestOptions
from replica.io.unfetched import Unfetched, note_fetched, times_of, unfetched_of

__all__ = [
    "FILE_MODE",
    "INSTALL_HOST",
    "LOOK_AGAIN_S",
    "STOP_GRACE_S",
    "AnswerOverdue",
    "ArchiveTooLarge",
    "Asked",
    "AwaitedHost",
    "BlobCalls",
    "BlobQuota",
    "BlobState",
    "BlobWriter",
    "Blobs",
    "CertificateFile",
    "ConfigInvalid",
    "ContextPages",
    "Delta",
    "Discarded",
    "ExpiringBlobs",
    "Finished",
    "FolderTaken",
    "FolderUse",
    "HostCalls",
    "HostMissing",
    "HostSample",
    "HostUnreachable",
    "HubCalls",
    "HubKeyUnknown",
    "HubStatus",
    "Joined",
    "KeyFileGone",
    "Keyless",
    "LinkBack",
    "LinkLost",
    "LogFormat",
    "MetricsServer",
    "NotStored",
    "NotTaken",
    "Opening",
    "PagedEntry",
    "PeerError",
    "PendingJoin",
    "Performer",
    "Prefilling",
    "ReaderGone",
    "Redeeming",
    "Repeated",
    "ReplayEvent",
    "ReplayProgress",
    "Replica",
    "RequestOptions",
    "RunningRequest",
    "SavedAcks",
    "SavedEndings",
    "SecondLook",
    "SecretInvalid",
    "Store",
    "StoreRepair",
    "TurnEvent",
    "Unfetched",
    "WriteUnconfirmed",
    "add_services",
    "allow_descriptors",
    "answers",
    "at_home",
    "await_grant",
    "begin",
    "bounded_server",
    "calls_allowed",
    "cancels",
    "check_folder",
    "check_usable",
    "choose_host",
    "close_file",
    "configure_log",
    "current_invitation",
    "decode_receipt",
    "documents",
    "encode_receipt",
    "error_of",
    "event_to_pb",
    "explain",
    "fetch_missing",
    "forget_answered",
    "get_logger",
    "guarded_streams",
    "has_joined",
    "has_lost_grpc",
    "hear_list",
    "held_at_hub",
    "hosts_of",
    "import_entries",
    "invite",
    "issued_invitations",
    "key_before",
    "keys",
    "linked_hosts",
    "listed",
    "listen",
    "load_or_begin",
    "load_or_create",
    "load_or_create_secret",
    "log_to_stderr",
    "look_again",
    "look_at",
    "make_folder",
    "make_settings",
    "means_away",
    "missing_host_packages",
    "next_message",
    "note_fetched",
    "note_own_key",
    "now_ms",
    "open_channel",
    "open_read_only",
    "own_file",
    "own_key_of",
    "pending_joins",
    "petnames",
    "pieces_of",
    "pin",
    "pinned_key",
    "program_settings",
    "python",
    "read_settings",
    "repair_store",
    "replacing",
    "require_content",
    "require_endpoint",
    "require_free",
    "require_known_key",
    "require_link",
    "require_loopback",
    "restored",
    "revoke_invitation",
    "rpc",
    "run_until_stopped",
    "save_hub",
    "saved_hub",
    "server_failed",
    "status",
    "stop_with_supervisor",
    "sync_folder",
    "take_folder",
    "times_of",
    "to_the_end",
    "turns",
    "typed_errors",
    "unfetched_of",
    "use_of",
    "uses_grpc",
    "void_invitations",
]
