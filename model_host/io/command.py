"""The command `python -m model_host`: its arguments, its errors, and its exit status."""

import asyncio
import gc
import sys
import threading

from model_host.engine import torch_import
from model_host.grammar_process import THREAD_STACK_BYTES
from model_host.io import fetch
from model_host.io.config import HostConfig
from replica.errors import AntiphonError, HostError, with_step
from replica.io import (
    INSTALL_HOST,
    ReaderGone,
    explain,
    guarded_streams,
    log_to_stderr,
    missing_host_packages,
    read_settings,
    stop_with_supervisor,
    typed_command,
)

USAGE = "Run a model host: python -m model_host serve | pull | list."
SWITCH_S = 0.0005
"""Seconds that the event loop may keep the interpreter while the engine's thread wants it."""
FLAGS = {
    "operator_keys": "--operator-key",
    "owner_keys": "--owner-key",
    "invitations": "--invitation",
}
"""Flags whose name differs from the setting's."""
OTHERS = frozenset({"ANTIPHON_HOST_MODULE"})
"""Variables that begin like the host's own: `antiphon up` reads this one, and hands it on."""


def _serve(arguments: list[str], typed: str) -> int:
    config = read_settings(
        HostConfig,
        arguments,
        prog=typed,
        description="Run an Antiphon model host.",
        flags=FLAGS,
        others=OTHERS,
    )
    log_to_stderr(config.log_format)
    stop_with_supervisor()
    give_threads_room()
    # What is imported and loaded from here on stays; `serve` switches collection on again.
    gc.disable()
    sys.setswitchinterval(SWITCH_S)
    try:
        torch_import.import_torch()  # `pull` and `list` do without it
        from model_host.io.server import serve
    except ModuleNotFoundError as error:
        if missing := missing_host_packages():
            names = ", ".join(missing)
            raise with_step(HostError(f"not installed: {names}"), INSTALL_HOST) from error
        raise
    asyncio.run(serve(config))
    return 0


def give_threads_room() -> None:
    """Let threads have the stack for which grammars are checked, whatever the system's default.

    It is 2 MiB where a process has no limit, and a thread without room ends the host.
    """
    threading.stack_size(THREAD_STACK_BYTES)


def _run(arguments: list[str], typed: str) -> int:
    log_to_stderr()
    match arguments[0] if arguments else "":
        case "serve":
            return _serve(arguments[1:], typed)
        case "pull" | "list":
            return fetch.main(arguments)
        case _:
            print(USAGE, file=sys.stderr)
            return 2


def main(arguments: list[str]) -> int:
    """Run the command in `arguments`; print errors, and return the exit status."""
    typed = typed_command(" ".join(("python -m model_host", *arguments[:1])))
    try:
        with guarded_streams():
            return _run(arguments, typed)
    except ReaderGone:
        return 1
    except AntiphonError as error:
        print(explain(typed, error), file=sys.stderr)
        return 1
