"""The environment of a program before its imports."""

import os


def without_grpc_lines() -> None:
    """Keep gRPC's core from writing to stderr itself, unless the environment wants its lines.

    Peers cause them with calls and handshakes that are wrong, and a hub with connections that it
    ends. They are no events of a daemon's log, and a library prints nothing. Call it before grpc
    is imported: later, nothing changes.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
