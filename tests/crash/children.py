"""Programs that a crash test starts and kills; they print the acknowledged writes."""

import asyncio
import hashlib
import os
import random
import resource
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection
from pathlib import Path

from replica.errors import StoreError
from replica.ids import ConversationId, Digest
from replica.io.blobs.blobs import Blobs
from replica.io.store.store import Store
from replica.log.entry import Entry
from tests.support.writers import Writer, said

STDOUT = 1
GROUP = 3
"""Entries per append; an append is atomic."""
CALLERS = 4
FILE_BYTES_MAX = 600_000
BLOB_BYTES = 64_000_000
CONVERSATION = ConversationId(b"c" * 32)


def genesis() -> Entry:
    """Return the first entry of the one conversation these programs write."""
    return Writer(0).genesis()


def blob() -> tuple[Digest, bytes]:
    """Return the blob that `upload` writes."""
    data = random.Random(1).randbytes(BLOB_BYTES)
    return Digest(hashlib.sha256(data).digest()), data


def grow(writer: Writer, text: str) -> list[Entry]:
    """Write one group, each entry following the writer's last."""
    root = genesis()
    group = []
    for _ in range(GROUP):
        last = writer.last(root.conversation) or root
        group.append(writer.write(root.conversation, said(text), parents=[last]))
    return group


async def append(path: Path, run: int) -> None:
    """Append for ever from several callers, and print each group once acknowledged."""

    async def caller(number: int) -> None:
        writer = Writer(number, epoch=run)
        while True:
            group = grow(writer, f"run {run}")
            await store.append(group)
            print(*(entry.id.hex() for entry in group), flush=True)

    store = await Store.open(path)
    await store.append([genesis()])
    await asyncio.gather(*(caller(number) for number in range(CALLERS)))


async def fill(path: Path) -> None:
    """Append until writing fails, then continue with more space."""
    async with await Store.open(path) as store:
        await store.append([genesis()])
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, hard))
        writer = Writer(1)
        refused: list[Entry] = []
        while not refused:
            group = grow(writer, "x" * 5_000)
            try:
                await store.append(group)
                print("acked", *(entry.id.hex() for entry in group))
            except StoreError as error:
                print("refused", type(error).__name__)
                refused = group
        loaded = (await store.load(genesis().conversation)).entries
        print("kept", len(loaded))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        await store.append(refused)
        print("acked", *(entry.id.hex() for entry in refused))


async def upload(folder: Path) -> None:
    """Continue the upload of the blob, and print the committed size."""
    digest, data = blob()
    blobs = Blobs(folder)
    at = (await blobs.stat(CONVERSATION, digest)).committed_bytes
    print(at, flush=True)
    async with await blobs.open_write(CONVERSATION, digest, len(data), at) as writer:
        while at < len(data):
            state = await writer.write(data[at : at + 100_000])
            at += 100_000
            print(state.committed_bytes, flush=True)


PROGRAMS: dict[str, Callable[..., Coroutine[None, None, None]]] = {
    "append": append,
    "fill": fill,
    "upload": upload,
}


def run(output: Connection, program: str, target: Path, *arguments: int) -> None:
    """Run a program to its end; `output` takes the place of standard output."""
    os.dup2(output.fileno(), STDOUT)
    asyncio.run(PROGRAMS[program](target, *arguments))
