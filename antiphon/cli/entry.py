"""The entry point of the command: Ctrl-C while its modules are loaded ends it without a word.

It imports nothing more than the command does, so that the start takes no longer.
"""

import sys

from replica.imports.io import without_grpc_lines

EXIT_INTERRUPTED = 130


def main() -> None:
    """Load the command and run it."""
    without_grpc_lines()
    try:
        from antiphon.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
