"""The socket by which processes share one folder."""

from replica.io.local import local_frames, local_socket
from replica.io.local.local_client import ANSWER_S, ConnectionEnded, LocalClient
from replica.io.local.local_frames import LocalFrame, SharingUnsupported, WriteUnconfirmed
from replica.io.local.local_server import Identity, LocalServer
from replica.io.local.local_socket import is_supported

__all__ = [
    "ANSWER_S",
    "ConnectionEnded",
    "Identity",
    "LocalClient",
    "LocalFrame",
    "LocalServer",
    "SharingUnsupported",
    "WriteUnconfirmed",
    "is_supported",
    "local_frames",
    "local_socket",
]
