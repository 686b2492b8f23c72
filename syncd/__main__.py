"""Run a hub: python -m syncd."""

import gc
import signal
import sys

from replica.imports import uncollected
from replica.imports.io import without_grpc_lines

if __name__ == "__main__":
    # Ctrl-C ends the process at once, until `serve` handles it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

without_grpc_lines()
with uncollected():
    import asyncio

    from replica.errors import AntiphonError
    from replica.io import (
        ReaderGone,
        explain,
        guarded_streams,
        log_to_stderr,
        read_settings,
        stop_with_supervisor,
        typed_command,
    )
    from syncd.io import HubConfig, serve

FLAGS = {"host_keys": "--host-key"}
"""Flags whose name differs from the setting's."""


SWITCH_S = 0.001
"""Time after which a busy event loop lets a thread go on: an append needs those of gRPC and of
SQLite some ten times (DECISIONS D397)."""


def _serve(typed: str) -> None:
    config = read_settings(
        HubConfig, None, prog=typed, description="Run an Antiphon hub.", flags=FLAGS
    )
    sys.setswitchinterval(SWITCH_S)
    log_to_stderr(config.log_format)
    stop_with_supervisor()
    asyncio.run(serve(config))


def main() -> int:
    """Read the settings and run; print a message on errors. Returns the exit code."""
    typed = typed_command("python -m syncd")
    try:
        with guarded_streams():
            _serve(typed)
    except ReaderGone:
        return 1
    except AntiphonError as error:
        print(explain(typed, error), file=sys.stderr)
        return 1
    finally:
        gc.freeze()  # else passes at exit scan every module again
    return 0


if __name__ == "__main__":
    sys.exit(main())
