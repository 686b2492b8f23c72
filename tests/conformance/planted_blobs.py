"""Faults put into how a hub keeps blobs that expire: the kit must find every one."""

import os
from unittest import mock

from replica.io import Blobs, ExpiringBlobs
from replica.io.blobs import blob_writer, expiring_blobs
from replica.io.blobs.blob_files import set_expiry
from syncd.io.blob_stores import BlobStores
from tests.conformance.planted_hub import Patch, both


def takes_times_that_have_passed() -> Patch:
    open_write = BlobStores.open_write

    async def later(self: BlobStores, *given: object):
        *blob, time_ms = given
        return await open_write(self, *blob, time_ms and max(time_ms, 2**42))

    return mock.patch.object(BlobStores, "open_write", later)


def stores_a_digest_once() -> Patch:
    open_write = BlobStores.open_write

    async def where_it_is(self: BlobStores, conversation, digest, *rest: int):
        *given, time_ms = rest
        lasts = (await self._lasting.stat(conversation, digest)).complete
        return await open_write(self, conversation, digest, *given, 0 if lasts else time_ms)

    return mock.patch.object(BlobStores, "open_write", where_it_is)


def keeps_blobs_that_have_expired() -> Patch:
    return mock.patch.dict(ExpiringBlobs.lifetimes_s, {"": 3600})


def deletes_blobs_early() -> Patch:
    def early(file, time_ms):
        set_expiry(file, time_ms - 700)

    return both(
        mock.patch.object(blob_writer, "set_expiry", early),
        mock.patch.object(expiring_blobs, "set_expiry", early),
    )


def heeds_the_first_time_alone() -> Patch:
    return mock.patch.object(expiring_blobs, "_keep_until", lambda whole, time_ms: None)


def heeds_the_last_time() -> Patch:
    def last(whole, time_ms):
        os.utime(whole, ns=(time_ms * 10**6, time_ms * 10**6))

    return mock.patch.object(expiring_blobs, "_keep_until", last)


def loses_times_when_it_starts() -> Patch:
    made = BlobStores.__init__

    def moved(self: BlobStores, lasting: Blobs, expiring: ExpiringBlobs, *rest) -> None:
        for file in expiring._folder.glob("*/*"):
            folder = lasting._folder / file.parent.name
            folder.mkdir(parents=True, exist_ok=True)
            file.rename(folder / file.name)
        made(self, lasting, expiring, *rest)

    return mock.patch.object(BlobStores, "__init__", moved)
