"""Run a model host: python -m model_host serve | pull | list."""

import signal
import sys

from replica.imports import uncollected
from replica.imports.io import without_grpc_lines

if __name__ == "__main__":
    # Ctrl-C ends the process at once, until `serve` handles it: loading takes seconds.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

without_grpc_lines()
with uncollected():
    from model_host.engine import torch_import


def main(arguments: list[str]) -> int:
    """Run the command in `arguments`; return the exit status."""
    if arguments[:1] == ["serve"]:
        torch_import.begin_loading()
    with uncollected():
        from model_host.io import command  # while torch is loaded

    return command.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
