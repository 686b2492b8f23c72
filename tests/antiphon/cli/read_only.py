"""Run `antiphon` in a process that may read a data folder and not write it.

    python -m tests.antiphon.cli.read_only FOLDER [PATH]

Of the folder nothing may be written, or nothing of what PATH names. Reads a list of commands
as JSON, each a list of arguments, and prints a list of their exit codes, outputs and errors.
Root may write everywhere, so the process gives up that right first.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

CAPBSET_DROP = 24
DAC_OVERRIDE = 1
"""Numbers of linux/prctl.h and linux/capability.h."""


def main() -> None:
    """Take the rights to write away, then begin again, since only a new program lacks them."""
    if len(sys.argv) == 1:
        run(json.load(sys.stdin))
        return
    folder = Path(sys.argv[1])
    named = sys.argv[2:]
    for path in [folder / name for name in named] or (*folder.rglob("*"), folder):
        path.chmod(0o500 if path.is_dir() else 0o400)
    if os.geteuid() == 0:
        assert ctypes.CDLL(None).prctl(CAPBSET_DROP, DAC_OVERRIDE, 0, 0, 0) == 0
    os.execv(sys.executable, [sys.executable, "-m", "tests.antiphon.cli.read_only"])


def run(commands: list[list[str]]) -> None:
    """Run the commands and print what came of them."""
    from tests.antiphon.cli.processes import antiphon  # not needed before the second beginning

    folder = Path(os.environ["ANTIPHON_DATA_DIR"]).parent
    done = [antiphon(folder, *arguments) for arguments in commands]
    print(json.dumps([(one.returncode, one.stdout, one.stderr) for one in done]))


if __name__ == "__main__":
    main()
