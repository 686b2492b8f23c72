"""The file of a bundle, and the blobs in it: neither is ever whole in memory."""

import asyncio
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import BinaryIO

from antiphon.cli.common.errors import file_unusable
from antiphon.cli.common.session import Session
from antiphon.cli.common.user_files import check_replaceable, new_file
from replica.conversation import Conversation
from replica.ids import ConversationId, Digest, short
from replica.io import Blobs, pieces_of
from replica.log import (
    BUNDLE_MAGIC,
    BlobSource,
    Bundle,
    BundledBlob,
    decode_bundle,
    encode_bundle,
)
from replica.refusals import BlobMissing

_BLOB_NAME = re.compile("[0-9a-f]{64}")


@contextmanager
def opened_bundle(path: Path) -> Iterator[Bundle]:
    """Read and check a bundle; its blobs can be read during the block.

    Raises FileUnusable, BundleInvalid, DraftUnknown; an OSError of the block is not the file's.
    """
    with ExitStack() as opened:
        with _naming(path):
            given = opened.enter_context(path.open("rb"))
            bundle = decode_bundle(opened.enter_context(_seekable(given)))
        yield bundle


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise file_unusable(path, error) from error


@contextmanager
def _seekable(given: BinaryIO) -> Iterator[BinaryIO]:
    """Give a file that can be sought in: a pipe is copied to a file without a name.

    What does not begin like a bundle is not read on.
    """
    if given.seekable():
        yield given
        return
    beginning = given.read(len(BUNDLE_MAGIC))
    with TemporaryFile() as copy:
        copy.write(beginning)
        if beginning == BUNDLE_MAGIC:
            copyfileobj(given, copy)
        yield copy


async def blobs_of(session: Session, conversation: ConversationId) -> list[BlobSource]:
    """Check the local blobs; one that fails its digest is left out with a note."""
    folder = session.settings.blobs_path / conversation.hex()
    blobs = Blobs(session.settings.blobs_path)
    found = []
    for path in sorted(folder.glob("*")) if folder.is_dir() else []:
        if not _BLOB_NAME.fullmatch(path.name):
            continue  # an upload that is not whole, or no file of ours
        digest, size = Digest(bytes.fromhex(path.name)), 0
        try:
            async for piece in blobs.read(conversation, digest):
                size += len(piece)
        except BlobMissing as error:
            session.out.note(f"blob {short(digest)} is left out: {error.detail}")
            continue
        found.append(BlobSource(digest, size, pieces_of(path)))
    return found


async def write_bundle(
    file: Path, held: Conversation, blobs: Iterable[BlobSource], *, force: bool
) -> int:
    """Write the file atomically, or nothing if cancelled; return its size in bytes."""
    check_replaceable(file, force=force)
    with new_file(file, force=force) as stream:
        for piece in encode_bundle(held.log.entries.values(), blobs):
            stream.write(piece)
            await asyncio.sleep(0)  # Ctrl-C ends it between two pieces
        return stream.tell()


async def store_blobs(
    session: Session, conversation: ConversationId, path: Path, bundle: Bundle
) -> None:
    """Store the blobs of the open bundle at `path` that are not here yet. Raises FileUnusable."""
    blobs = Blobs(session.settings.blobs_path)
    for digest, blob in bundle.blobs.items():
        state = await blobs.stat(conversation, digest)
        if state.complete or not blob.size_bytes:
            continue
        offset = state.committed_bytes if state.size_bytes == blob.size_bytes else 0
        writing = await blobs.open_write(conversation, digest, blob.size_bytes, offset)
        async with writing as writer:
            for piece in _read(path, blob, offset):
                await writer.write(piece)


def _read(path: Path, blob: BundledBlob, offset: int) -> Iterator[bytes]:
    with _naming(path):
        yield from blob.pieces(offset)
