"""Erase a conversation on a disk that has little room left.

    unshare --mount --map-root-user python -m tests.replica.io.store.erased_on_small_disk FOLDER

Mounts a small disk at FOLDER, stores a conversation of long messages in it, fills the disk but for
ROOM_BYTES, and erases the conversation. Prints the entries left, and the free bytes before and
after. The mount is of this process alone, and ends with it.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

from replica.io.store.store import Store
from tests.antiphon.cli.full_disk import fill
from tests.support.writers import Writer, said

DISK_BYTES = 16 << 20
ROOM_BYTES = 1 << 20
ENTRIES, TEXT_BYTES = 12, 300_000


async def erase(folder: Path) -> None:
    """Write, fill, and erase."""
    writer = Writer(1)
    genesis = writer.genesis()
    last, entries = genesis, [genesis]
    for _ in range(ENTRIES):
        last = writer.write(genesis.conversation, said("x" * TEXT_BYTES), parents=[last])
        entries.append(last)
    async with await Store.open(folder / "log.db") as store:
        await store.append(entries)
    async with await Store.open(folder / "log.db") as store:
        fill(folder / "filler", ROOM_BYTES)
        before = shutil.disk_usage(folder).free
        await store.delete(genesis.conversation, finishes=True)
        left = len((await store.load(genesis.conversation)).entries)
        print(json.dumps([left, before, shutil.disk_usage(folder).free]))


if __name__ == "__main__":
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs"]
    subprocess.run([*mount, sys.argv[1]], check=True)
    asyncio.run(erase(Path(sys.argv[1])))
