"""A hub process whose times and sizes are small, so that the kit waits seconds for them.

    python -m tests.conformance.small_hub --listen 127.0.0.1:7411 --data-dir folder

The rules are those of `python -m syncd`; the kit is given the same numbers.
"""

import sys

from replica import limits

TICKET_S = 12
IDLE_S = 4.0
SWEEP_S = 0.5
"""Time between two looks for blobs that have expired, a quarter of `blob_deletion`."""
SCALE = {
    "beat": 0.5, "write_timeout": 2.0, "keepalive": 0.5, "heads": 256,
    "blob_lifetime": 1.0, "blob_deletion": 2.0,
}  # fmt: skip
"""The numbers that nothing of a hub states, for the kit's Scale."""


def shrink() -> None:
    """Set the limits, before any module reads them."""
    limits.TICKET_LIFETIME_S = TICKET_S
    limits.IDLE_TIMEOUT_S = IDLE_S
    limits.HEARTBEAT_S = SCALE["beat"]
    limits.WRITE_TIMEOUT_S = SCALE["write_timeout"]
    limits.HEADS_PER_FRAME_MAX = int(SCALE["heads"])


def main() -> int:
    """Run the hub."""
    shrink()
    from replica.io import rpc
    from syncd.io import blob_stores

    blob_stores.SWEEP_EVERY_S = SWEEP_S
    interval = ("grpc.http2.min_ping_interval_without_data_ms", int(SCALE["keepalive"] * 900))
    rpc.SERVER_OPTIONS = tuple(
        interval if name == interval[0] else (name, value) for name, value in rpc.SERVER_OPTIONS
    )
    from syncd.__main__ import main as serve

    return serve()


if __name__ == "__main__":
    sys.exit(main())
