"""Run a model host: python -m model_host serve | pull | list."""

import argparse
import asyncio
import io
import json
import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TextIO, cast

import structlog
from pydantic import ValidationError

from model_host import fetch
from model_host.config import HostConfig
from replica.aio.serving import explain
from replica.errors import AntiphonError

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


class Stderr(io.TextIOBase):
    """Standard error, on which no answer depends: lines a full disk does not take are lost."""

    def write(self, text: str) -> int:
        """Write what can be written."""
        with suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Push it out as far as that goes."""
        with suppress(OSError):
            sys.stderr.flush()


def _serve(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m model_host serve", description="Run an Antiphon model host."
    )
    for name, field in HostConfig.model_fields.items():
        parser.add_argument("--" + name.replace("_", "-"), help=f"default: {field.get_default()}")
    parser.add_argument("--print-config", action="store_true", help="print settings and exit")
    settings = {k: v for k, v in vars(parser.parse_args(arguments)).items() if v is not None}
    print_config = settings.pop("print_config")
    try:
        config = HostConfig(**settings)
    except ValidationError as error:
        print(f"model_host: {error}", file=sys.stderr)
        return 2
    if print_config:
        print(json.dumps(config.model_dump(mode="json"), indent=2))
        return 0
    if os.environ.get(STOP_AT_EOF):
        _stop_at_end_of_stdin()
    from model_host.aio.server import serve  # torch: not for `pull` and `list`

    asyncio.run(serve(config))
    return 0


def main(arguments: list[str]) -> int:
    """Dispatch, and say in words what went wrong."""
    # The default traceback shows local variables: what people wrote would be in the log.
    show = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(
        processors=[*structlog.get_config()["processors"][:-1], show],
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, Stderr())),
    )
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    command = arguments[0] if arguments else ""
    try:
        match command:
            case "serve":
                return _serve(arguments[1:])
            case "pull" | "list":
                return fetch.main(arguments)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except AntiphonError as error:
        print(explain("model_host", error), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
