"""The blobs of a bundle: from one machine to another, through a file or a pipe."""

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from antiphon.cli.common.bundle_file import opened_bundle, write_bundle
from replica.conversation import Conversation
from replica.ids import Digest
from replica.io import Blobs
from replica.log import BlobSource, decode_bundle
from tests.antiphon.cli.conftest import Terminal, World
from tests.support.writers import Writer

PICTURE = bytes(range(256)) * 3_000


def put(me: Terminal, conversation: str, name: str, content: bytes) -> Path:
    folder = me.data_dir / "blobs" / conversation
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


@pytest.fixture
def exported(me: Terminal, tmp_path: Path) -> Path:
    """A bundle with a blob and an empty one; another one of its conversation is damaged."""
    conversation = me.record("new")["conversation"]
    put(me, conversation, hashlib.sha256(PICTURE).hexdigest(), PICTURE)
    put(me, conversation, "0" * 64, b"damaged")
    put(me, conversation, hashlib.sha256(b"").hexdigest(), b"")
    file = tmp_path / "talk.bundle"
    result = me.run("export", conversation, str(file))
    assert "2 blobs," in result.stdout
    assert "blob 000000000000 is left out" in result.stderr
    return file


def blobs(me: Terminal) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in me.data_dir.glob("blobs/*/*")}


def test_the_blobs_of_a_bundle_are_stored(world: World, exported: Path) -> None:
    other = world.replica("other")
    other.ok("import", str(exported), "--read-only")
    assert not blobs(other)
    for _ in range(2):
        other.ok("import", str(exported))
        assert blobs(other) == {hashlib.sha256(PICTURE).hexdigest(): PICTURE}


def test_a_bundle_of_a_conversation_that_is_here_leaves_the_next_message_where_it_was(
    me: Terminal, exported: Path
) -> None:
    second = me.record("new")["conversation"]
    me.ok("import", str(exported))
    assert [one["conversation"] for one in me.records("list") if one["is_current"]] == [second]


def test_a_bundle_is_read_from_a_pipe(world: World, exported: Path, tmp_path: Path) -> None:
    other, pipe = world.replica("other"), tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_bytes, args=[exported.read_bytes()])
    writer.start()
    other.ok("import", str(pipe))
    writer.join()
    assert blobs(other) == {hashlib.sha256(PICTURE).hexdigest(): PICTURE}


def test_a_pipe_that_does_not_begin_like_a_bundle_is_refused(me: Terminal, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_bytes, args=[b"#!/bin/sh"])
    writer.start()
    assert me.refused("import", str(pipe)) == "BUNDLE_INVALID"
    writer.join()


@pytest.mark.parametrize("size", [len(PICTURE), len(PICTURE) + 1], ids=["its size", "another size"])
def test_an_upload_that_was_cut_off_is_completed(world: World, exported: Path, size: int) -> None:
    other, half = world.replica("other"), len(PICTURE) // 2
    digest = Digest(hashlib.sha256(PICTURE).digest())
    with exported.open("rb") as file:
        conversation = decode_bundle(file).entries[0].conversation

    async def cut_off() -> None:
        store = Blobs(other.data_dir / "blobs")
        async with await store.open_write(conversation, digest, size, 0) as writer:
            await writer.write(PICTURE[:half])

    asyncio.run(cut_off())
    other.ok("import", str(exported))
    assert blobs(other) == {digest.hex(): PICTURE}


def test_an_error_of_the_block_is_not_the_files(exported: Path) -> None:
    with pytest.raises(BrokenPipeError), opened_bundle(exported):
        raise BrokenPipeError


def test_a_bundle_that_is_cancelled_while_it_is_written_leaves_nothing(tmp_path: Path) -> None:
    genesis = Writer(1).genesis()
    held = Conversation.restore(genesis.conversation, [genesis])

    async def cancel() -> None:
        begun = asyncio.Event()

        def endless() -> Iterator[bytes]:
            while True:
                begun.set()
                yield bytes(1_000)

        blob = BlobSource(Digest(bytes(32)), 1 << 50, endless())
        writing = asyncio.create_task(write_bundle(tmp_path / "b", held, [blob], force=False))
        await begun.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing

    asyncio.run(cancel())
    assert not list(tmp_path.iterdir())
