"""The environment of a daemon before its imports."""

import os


def without_grpc_lines() -> None:
    """Keep gRPC's core from writing to stderr itself, unless the environment wants its lines.

    Peers cause them with calls and handshakes that are wrong, and they are no events of the log.
    Call it before grpc is imported.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
