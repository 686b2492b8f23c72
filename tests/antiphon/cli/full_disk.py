"""Run `antiphon` for a replica whose folder is on a full disk.

    unshare --mount --map-root-user python -m tests.antiphon.cli.full_disk FOLDER ROOM

Mounts a small disk at FOLDER, copies what the folder held into it, and fills it but for ROOM
bytes. Reads a list of commands as JSON, each a list of arguments, and prints a list of their
exit codes, outputs and errors. The mount is of this process alone, and ends with it.
"""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DISK_BYTES = 2 << 20
PAGE_BYTES = 4096


def main() -> None:
    """Mount, fill, and run the commands."""
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", folder]
        subprocess.run(mount, check=True)
        shutil.copytree(copy, folder, dirs_exist_ok=True)
    fill(folder / "filler", int(sys.argv[2]))
    run(json.load(sys.stdin))


def fill(file: Path, room_bytes: int = 0) -> None:
    """Write until the disk is full, then make room again."""
    with file.open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(PAGE_BYTES))
        except OSError as error:
            assert error.errno == errno.ENOSPC
        filler.truncate(filler.tell() - room_bytes)


def run(commands: list[list[str]]) -> None:
    """Run the commands and print what came of them."""
    from tests.antiphon.cli.processes import antiphon  # not needed where nothing can be mounted

    folder = Path(os.environ["ANTIPHON_DATA_DIR"]).parent
    done = [antiphon(folder, *arguments) for arguments in commands]
    print(json.dumps([(one.returncode, one.stdout, one.stderr) for one in done]))


if __name__ == "__main__":
    main()
