"""Run a hub: python -m syncd."""

import argparse
import asyncio
import json
import os
import signal
import sys
import threading
from contextlib import suppress

import structlog
from pydantic import ValidationError

from replica.aio.serving import explain
from replica.errors import AntiphonError
from syncd.aio.server import serve
from syncd.config import HubConfig

STOP_AT_EOF = "ANTIPHON_STOP_AT_EOF"
"""Set by a supervisor that alone holds the other end of stdin."""


def _stop_at_end_of_stdin() -> None:
    """Take the end of stdin for SIGTERM: a supervisor that is killed can't send one."""

    def wait() -> None:
        with suppress(OSError):
            while os.read(0, 1024):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="end of stdin", daemon=True).start()


def main() -> int:
    """Read settings, run, and say in words what went wrong."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    parser = argparse.ArgumentParser(prog="python -m syncd", description="Run an Antiphon hub.")
    for name, field in HubConfig.model_fields.items():
        flag = "--" + name.replace("_", "-")
        nargs = "*" if name == "creators" else None
        parser.add_argument(flag, nargs=nargs, help=f"default: {field.get_default()}")
    parser.add_argument("--print-config", action="store_true", help="print settings and exit")
    arguments = {k: v for k, v in vars(parser.parse_args()).items() if v is not None}
    print_config = arguments.pop("print_config")
    try:
        config = HubConfig(**arguments)
    except ValidationError as error:
        print(f"syncd: {error}", file=sys.stderr)
        return 2
    if print_config:
        print(json.dumps(config.model_dump(mode="json"), indent=2))
        return 0
    if os.environ.get(STOP_AT_EOF):
        _stop_at_end_of_stdin()
    try:
        asyncio.run(serve(config))
    except AntiphonError as error:
        print(explain("syncd", error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
