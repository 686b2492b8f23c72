"""Cases of chapter 08 §9: blobs with a time to expire at."""

import asyncio

import grpc

from antiphon.conformance.cases import NotApplicable, check, equal
from antiphon.conformance.histories import History
from antiphon.conformance.io.calls import Caller, refusal_of
from antiphon.conformance.io.hub.blob_cases import (
    DATA,
    begun,
    digest_of,
    read,
    refused,
    stat,
    write,
)
from antiphon.conformance.io.hub.run import TABLE, HubRun
from antiphon.v1 import blob_pb2 as pb
from replica.io import now_ms

_theme = TABLE.theme("expiry")

HOUR_MS = 3_600_000
LOOK_S = 0.2
"""Interval of looks whether a blob is there."""
OTHER = DATA[::-1]
NOTHING = pb.StatResponse()


@_theme.shows("CKPT-22")
async def a_time_that_has_passed_is_refused(run: HubRun) -> None:
    """A Write with a time to expire at that has passed is ARGUMENT_INVALID."""
    history, owner = await begun(run)
    found = await refused(owner, history, DATA, expire_time_ms=now_ms() - HOUR_MS)
    equal(found.reason, "ARGUMENT_INVALID", "the reason for a time of an hour ago")
    equal(await stat(owner, history, digest_of(DATA)), NOTHING, "the state of that blob")


@_theme.shows("CKPT-22")
async def one_digest_is_written_both_ways(run: HubRun) -> None:
    """A Remove deletes a blob that expires, and leaves one of the same digest that lasts."""
    history, owner = await begun(run)
    for times in ((0, HOUR_MS), (HOUR_MS, 0)):
        data = DATA + bytes([bool(times[0])])
        for lifetime_ms in times:
            expire_ms = now_ms() + lifetime_ms if lifetime_ms else 0
            found = await write(owner, history, data, expire_time_ms=expire_ms)
            check(found.complete, "the blob is not complete")
        digest = digest_of(data)
        removal = pb.RemoveRequest(conversation=history.id, digest=digest)
        removed = await owner.call("Remove", removal)
        equal(removed.removed_bytes, len(data), "the bytes removed of a blob written both ways")
        check(await _data(owner, history, digest) == data, "the blob that lasts is gone with it")


@_theme.shows("CKPT-22", needs="--wait")
async def a_blob_is_served_until_its_time_and_then_deleted(run: HubRun) -> None:
    """A blob is served until the time that its Write stated, and deleted within two minutes."""
    history, owner = await begun(run)
    await write(owner, history, OTHER)
    await _written(run, owner, history, OTHER)
    await _until_gone(run, owner, history, await _written(run, owner, history, DATA))
    lasts = await _data(owner, history, digest_of(OTHER)) == OTHER
    check(lasts, "a blob that lasts is gone with the one of its digest that expires")


@_theme.shows("CKPT-22", needs="--wait")
async def a_later_time_counts_and_an_earlier_one_does_not(run: HubRun) -> None:
    """A blob that was written with two times is served until the later one."""
    history, owner = await begun(run)
    prolonged, shortened = b"prolonged", b"shortened"
    await write(owner, history, shortened, expire_time_ms=now_ms() + HOUR_MS)
    expire_ms = await _written(run, owner, history, prolonged)
    for data, time_ms in ((prolonged, now_ms() + HOUR_MS), (shortened, expire_ms)):
        await write(owner, history, data, offset=len(data), expire_time_ms=time_ms)
    await _until_gone(run, owner, history, await _written(run, owner, history, DATA))
    for data in (prolonged, shortened):
        found = await _data(owner, history, digest_of(data))
        check(found == data, f"a blob that was {data.decode()} is gone before its later time")


@_theme.shows("CKPT-22", "LINK-24", needs="--restart")
async def a_time_to_expire_at_outlasts_a_kill(run: HubRun) -> None:
    """A blob that expires is served after a kill, and is still one that expires."""
    history, owner = await begun(run)
    await write(owner, history, DATA, expire_time_ms=now_ms() + HOUR_MS)
    await run.kill()
    owner = await run.enter(history.owner)
    digest = digest_of(DATA)
    check(await _data(owner, history, digest) == DATA, "the blob is gone with the kill")
    removed = await owner.call("Remove", pb.RemoveRequest(conversation=history.id, digest=digest))
    equal(removed.removed_bytes, len(DATA), "the bytes removed of a blob that expires")


async def _written(run: HubRun, owner: Caller, history: History, data: bytes) -> int:
    """Write a blob that expires soon; return its time."""
    expire_ms = now_ms() + round(run.scale.blob_lifetime * 1000)
    await write(owner, history, data, expire_time_ms=expire_ms)
    return expire_ms


async def _until_gone(run: HubRun, owner: Caller, history: History, expire_ms: int) -> None:
    """Wait until the blob of DATA is deleted. Raises Violation where that is early or late.

    Raises NotApplicable where the hub has more time for it than the run allows.
    """
    digest, begun_ms = digest_of(DATA), now_ms()
    needed_s = run.scale.blob_lifetime + run.scale.blob_deletion
    while True:
        asked_ms = now_ms()
        data, state = await _data(owner, history, digest), await stat(owner, history, digest)
        if now_ms() < expire_ms:
            check(data == DATA, f"a blob is not served {expire_ms - now_ms()} ms before its time")
        elif not data and state == NOTHING:
            return
        late_s = (asked_ms - expire_ms) / 1000
        check(late_s <= run.scale.blob_deletion, f"a blob is there {late_s:.0f} s after its time")
        if asked_ms - begun_ms > run.wait_s * 1000:
            raise NotApplicable(
                f"the hub deletes no blob within {run.wait_s:.0f} s, and has"
                f" {run.scale.blob_deletion:.0f} s for it: give --wait {needed_s + 1:.0f}"
            )
        await asyncio.sleep(LOOK_S)


async def _data(owner: Caller, history: History, digest: bytes) -> bytes:
    """Return the bytes of a blob, none if it is BLOB_NOT_FOUND."""
    try:
        return b"".join(await read(owner, history, digest))
    except grpc.aio.AioRpcError as error:
        equal(refusal_of(error).reason, "BLOB_NOT_FOUND", "the reason for a blob that is gone")
        return b""
