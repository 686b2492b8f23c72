"""Cases of chapter 04 §8: blobs."""

import asyncio
import hashlib
from contextlib import suppress

import grpc

from antiphon.conformance.cases import check, equal
from antiphon.conformance.histories import History
from antiphon.conformance.io.calls import PATIENCE_S, Caller, Refusal, refusal
from antiphon.conformance.io.hub.run import TABLE, HubRun
from antiphon.v1 import blob_pb2 as pb
from replica.io import now_ms
from replica.log import Role

_theme = TABLE.theme("blobs")

PIECE_BYTES = 256 * 1024
DATA = bytes(range(256)) * 2_500
"""640 kB, of three pieces."""


def digest_of(data: bytes) -> bytes:
    """Return the name of a blob."""
    return hashlib.sha256(data).digest()


async def write(
    caller: Caller,
    history: History,
    data: bytes,
    *,
    digest: bytes = b"",
    offset: int = 0,
    stop: int | None = None,
    size_bytes: int | None = None,
    expire_time_ms: int = 0,
) -> pb.WriteResponse:
    """Write a blob, or its bytes from `offset` to `stop`."""
    first = pb.WriteRequest(
        conversation=history.id,
        digest=digest or digest_of(data),
        size_bytes=len(data) if size_bytes is None else size_bytes,
        offset=offset,
        expire_time_ms=expire_time_ms,
    )
    ends = len(data) if stop is None else stop

    call = caller.blobs.Write(metadata=caller.metadata, timeout=PATIENCE_S)
    # A hub may end the call before all is written; its answer says why.
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await call.write(first)
        for at in range(offset, ends, PIECE_BYTES):
            await call.write(pb.WriteRequest(data=data[at : min(at + PIECE_BYTES, ends)]))
        await call.done_writing()
    response: pb.WriteResponse = await call
    return response


async def read(caller: Caller, history: History, digest: bytes, offset: int = 0) -> list[bytes]:
    """Return the pieces of a Read."""
    request = pb.ReadRequest(conversation=history.id, digest=digest, offset=offset)
    stream = caller.blobs.Read(request, metadata=caller.metadata, timeout=PATIENCE_S)
    return [response.data async for response in stream]


async def stat(caller: Caller, history: History, digest: bytes) -> pb.StatResponse:
    """Return the state of a blob."""
    request = pb.StatRequest(conversation=history.id, digest=digest)
    response: pb.StatResponse = await caller.call("Stat", request)
    return response


async def refused(
    caller: Caller,
    history: History,
    data: bytes,
    *,
    offset: int = 0,
    size_bytes: int = 0,
    expire_time_ms: int = 0,
) -> Refusal:
    """Send the first message of a Write, which must be refused for what it names."""
    call = caller.blobs.Write(metadata=caller.metadata, timeout=PATIENCE_S)
    await call.write(
        pb.WriteRequest(
            conversation=history.id,
            digest=digest_of(data),
            size_bytes=size_bytes or len(data),
            offset=offset,
            expire_time_ms=expire_time_ms,
        )
    )
    return await refusal(call)


async def begun(run: HubRun) -> tuple[History, Caller]:
    """Begin a conversation; return it and its owner."""
    history = run.new()
    return history, await run.push_all(history)


@_theme.shows("LINK-22", "PROM-13")
async def a_blob_is_written_in_parts_and_read_from_any_offset(run: HubRun) -> None:
    """A blob goes on at its committed size, and is read from any offset in pieces of 256 KiB."""
    history, owner = await begun(run)
    digest = digest_of(DATA)
    half = PIECE_BYTES + 5
    equal(await stat(owner, history, digest), pb.StatResponse(), "the state before any byte")
    found = await write(owner, history, DATA, stop=half)
    equal((found.committed_bytes, found.complete), (half, False), "the state after a part")
    wanted = pb.StatResponse(committed_bytes=half, size_bytes=len(DATA))
    equal(await stat(owner, history, digest), wanted, "the state after a part")
    found = await write(owner, history, DATA, offset=half)
    equal((found.committed_bytes, found.complete), (len(DATA), True), "the state of the whole")
    for offset in (0, 1000, len(DATA) - 1):
        pieces = await read(owner, history, digest, offset)
        check(b"".join(pieces) == DATA[offset:], f"other bytes than the blob's from {offset} on")
        check(max(map(len, pieces)) <= PIECE_BYTES, "a piece of more than 256 KiB")


@_theme.shows("LINK-22")
async def an_offset_must_be_the_committed_size(run: HubRun) -> None:
    """A Write at another offset than the committed size is BLOB_OFFSET_INVALID."""
    history, owner = await begun(run)
    await write(owner, history, DATA, stop=1000)
    for offset in (999, 1001, len(DATA)):
        found = await refused(owner, history, DATA, offset=offset)
        equal(found.reason, "BLOB_OFFSET_INVALID", f"the reason for offset {offset}")
    check((await write(owner, history, DATA, offset=1000)).complete, "the blob is not complete")


@_theme.shows("LINK-22", "LINK-23", "PROM-13")
async def bytes_of_another_digest_are_dropped(run: HubRun) -> None:
    """A blob that does not match its digest is dropped, and served to nobody."""
    history, owner = await begun(run)
    digest = digest_of(b"right")
    found = await refusal(write(owner, history, b"wrong", digest=digest))
    equal(found.reason, "BLOB_DIGEST_MISMATCH", "the reason for other bytes")
    equal((await refusal(_reading(owner, history, digest))).reason, "BLOB_NOT_FOUND", "the reason")
    check(not (await stat(owner, history, digest)).complete, "a wrong blob is complete")
    check((await write(owner, history, b"right")).complete, "the right bytes are not complete")


def _reading(caller: Caller, history: History, digest: bytes) -> object:
    request = pb.ReadRequest(conversation=history.id, digest=digest)
    return caller.blobs.Read(request, metadata=caller.metadata)


@_theme.shows("LINK-23")
async def an_incomplete_blob_is_not_read(run: HubRun) -> None:
    """A blob of which bytes are missing is BLOB_NOT_FOUND."""
    history, owner = await begun(run)
    await write(owner, history, DATA, stop=1000)
    found = await refusal(_reading(owner, history, digest_of(DATA)))
    equal(found.reason, "BLOB_NOT_FOUND", "the reason for an incomplete blob")


@_theme.shows("LINK-22", "LIM-2")
async def a_blob_above_the_limit_is_refused(run: HubRun) -> None:
    """A blob of more bytes than a hub takes is BLOB_TOO_LARGE before any of them."""
    history, owner = await begun(run)
    found = await refused(owner, history, b"x", size_bytes=2**50)
    equal(found.reason, "BLOB_TOO_LARGE", "the reason for a blob of 2^50 bytes")


@_theme.shows("LINK-22")
async def another_size_begins_anew(run: HubRun) -> None:
    """Offset 0 with another size begins a blob anew."""
    history, owner = await begun(run)
    await write(owner, history, DATA, stop=1000, size_bytes=len(DATA) + 1)
    check((await write(owner, history, DATA)).complete, "the blob of another size is not complete")


@_theme.shows("LINK-21", "LINK-9")
async def a_blob_is_of_one_conversation(run: HubRun) -> None:
    """A blob of one conversation is unknown in another, also to a key of both."""
    history, owner = await begun(run)
    other = run.new()
    reader = other.writer("reader")
    other.grant(reader.public, Role.READER)
    other.grant(history.owner.public, Role.READER)
    other_owner = await run.push_all(other)
    await write(other_owner, other, b"private")
    digest = digest_of(b"private")
    equal(await stat(owner, history, digest), pb.StatResponse(), "the state elsewhere")
    found = await refusal(_reading(owner, history, digest))
    equal(found.reason, "BLOB_NOT_FOUND", "the reason for a blob of another conversation")
    equal(await read(await run.enter(reader), other, digest), [b"private"], "the blob in its own")


@_theme.shows("TRUST-2")
async def a_reader_writes_no_blob(run: HubRun) -> None:
    """The Write of a key that may only read is ROLE_FORBIDS."""
    history = run.new()
    reader = history.writer("reader")
    history.grant(reader.public, Role.READER)
    await run.push_all(history)
    found = await refused(await run.enter(reader), history, DATA)
    equal(found.reason, "ROLE_FORBIDS", "the reason for a reader's blob")


@_theme.shows("CKPT-22")
async def a_blob_that_expires_is_served_until_then(run: HubRun) -> None:
    """A blob with a time to expire is served like any other, and may be removed before."""
    history, owner = await begun(run)
    await write(owner, history, DATA, expire_time_ms=now_ms() + 3_600_000)
    digest = digest_of(DATA)
    check(b"".join(await read(owner, history, digest)) == DATA, "other bytes than the blob's")
    removed = await owner.call("Remove", pb.RemoveRequest(conversation=history.id, digest=digest))
    equal(removed.removed_bytes, len(DATA), "the bytes removed")
    found = await refusal(_reading(owner, history, digest))
    equal(found.reason, "BLOB_NOT_FOUND", "the reason for a blob that was removed")


@_theme.shows("CKPT-22")
async def a_blob_is_removed_by_owners_and_hosts_alone(run: HubRun) -> None:
    """The Remove of a writer is ROLE_FORBIDS; that of an owner leaves a blob that lasts."""
    history = run.new()
    writer = history.writer("writer")
    history.grant(writer.public, Role.WRITER)
    owner = await run.push_all(history)
    await write(owner, history, DATA, expire_time_ms=now_ms() + 3_600_000)
    removal = pb.RemoveRequest(conversation=history.id, digest=digest_of(DATA))
    found = await refusal((await run.enter(writer)).call("Remove", removal))
    equal(found.reason, "ROLE_FORBIDS", "the reason for the Remove of a writer")
    check((await stat(owner, history, digest_of(DATA))).complete, "a writer removed the blob")
    lasting = b"lasting"
    await write(owner, history, lasting)
    removal.digest = digest_of(lasting)
    removed = await owner.call("Remove", removal)
    equal(removed.removed_bytes, 0, "the bytes removed of a blob that lasts")
    equal(await read(owner, history, removal.digest), [lasting], "the blob that lasts")
