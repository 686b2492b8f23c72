"""The hub tier: archives of checkpoints in the hub's blob store (spec/08-checkpoint §9).

A conversation that has been idle for a while has its newest checkpoint uploaded, and a
CHECKPOINT entry says so. Before a context is computed, the archive of such an entry is
stored on this host's disk, if neither memory nor disk reach as far and if it is sooner; the
restore from disk then does the rest, with all of its checks.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from io import FileIO
from pathlib import Path

import structlog

from model_host.errors import (
    ArchiveError,
    CheckpointError,
    CheckpointMissing,
    CheckpointWriteFailed,
    PrefillCancelled,
)
from model_host.io.contexts.due_uploads import DueUploads
from model_host.io.contexts.hub_tier import HubTier, HubTierCounters
from model_host.io.contexts.located import memory_tokens, stored_tokens
from model_host.io.files import (
    Checkpoints,
    append_to_archive,
    store_archive,
    unnamed_file,
    write_archive,
)
from model_host.io.profiles import Loaded, Offer, Profiles
from model_host.kv import Manifest, Offered, RestoreCost, offered, surplus, usable
from replica.conversation import Conversation
from replica.errors import AntiphonError
from replica.ids import ConversationId, Digest, EntryId, PublicKey, short
from replica.io import BlobCalls, Repeated, Replica, now_ms, to_the_end
from replica.limits import ARCHIVE_BYTES_MAX, BLOB_CHUNK_BYTES
from replica.log import Checkpoint, Kind
from replica.refusals import BlobMissing, QuotaExceeded

log = structlog.get_logger()

Ids = list[int] | tuple[int, ...]

FETCH_S = 30.0
"""Longest download while it is not known how long computing takes."""
FETCH_S_MIN = 1.0
FETCHES_MAX = 2
RETRY_S = 60.0
"""Time before an upload is tried again that failed, or for which the hub is away."""
RETRY_S_MAX = 3600.0
"""The longest such time, whatever the hub asks for."""
REFUSED_MAX = 1024
"""Entries remembered whose archives failed a check."""


class HubCheckpoints:
    """Uploads, finds and fetches archives; no failure of it fails an answer."""

    def __init__(
        self,
        replica: Replica,
        profiles: Profiles,
        pages: Checkpoints,
        ring_key: bytes,
        folder: Path,
        tier: HubTier,
    ) -> None:
        """Encrypt with `ring_key`; pass archives through files without a name in `folder`."""
        self.counters = HubTierCounters()
        self._replica = replica
        self._profiles = profiles
        self._pages = pages
        self._ring_key = ring_key
        self._folder = folder
        self._tier = tier
        self._cost = RestoreCost()
        self._fetching = asyncio.Semaphore(FETCHES_MAX)
        self._due = DueUploads(tier.idle_s)
        self._kept: dict[ConversationId, list[Offered]] = {}
        self._unfinished: tuple[ConversationId, Digest] | None = None
        """What the last upload has at the hub, unless it was announced."""
        self._uploading: ConversationId | None = None
        """The conversation of the upload in progress, unless it was evicted meanwhile."""
        self._refused: deque[EntryId] = deque(maxlen=REFUSED_MAX)
        self._lines = Repeated()
        replica.listen(self._due.receive)

    @property
    def nbytes(self) -> int:
        """Return the bytes of this host's archives at the hub, as far as it knows."""
        return sum(each.body.size_bytes for each in self._all_kept())

    # --- restore ----------------------------------------------------------------------

    async def fetch(
        self,
        held: Conversation,
        loaded: Loaded,
        ids: Ids,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Store an archive of a prefix of `ids` on disk, if that is sooner than computing it.

        Whatever fails is counted and logged, and the host computes. It ends early once it is
        not wanted any more.
        """
        first = ids[: len(ids) - 1]  # at least one token is left to compute
        namespace = loaded.namespaces.stored(held)
        token_bytes = loaded.thread.engine.memory.bytes_per_token
        tokens_max = self._pages.budget_bytes // token_bytes  # more are not stored here
        known = (
            one
            for one in offered(held)
            if one.id not in self._refused and one.body.tokens <= tokens_max
        )
        found = usable(known, namespace, first, now_ms())
        if not found:
            return
        try:
            missing = await self._missing(held, loaded.offer, found[0].body.tokens, first)
            async with asyncio.timeout(_patience_s(missing, loaded)), self._fetching:
                await self._fetch_first(held, loaded, found[0], missing, is_wanted)
        except PrefillCancelled:
            log.info("fetch cancelled", conversation=short(held.id))
        except CheckpointWriteFailed as error:  # of the disk, and no fault of the archive
            self.counters.missed += 1
            if times := self._lines.due(error.reason):
                fields = _fields(held, error)
                log.warning("checkpoint from the hub not stored", times=times, **fields)
        except (ArchiveError, CheckpointError) as error:
            self.counters.refused += 1
            self._refused.append(found[0].id)
            log.warning("checkpoint from the hub refused", **_fields(held, error))
        except AntiphonError as error:
            self.counters.missed += 1
            if isinstance(error, BlobMissing):
                self._refused.append(found[0].id)
            if times := self._lines.due(error.reason):
                fields = _fields(held, error)
                log.warning("checkpoint at the hub not reached", times=times, **fields)
        except TimeoutError:
            self.counters.missed += 1
            log.warning("checkpoint from the hub came too slowly", conversation=short(held.id))

    async def _fetch_first(
        self,
        held: Conversation,
        loaded: Loaded,
        best: Offered,
        missing: int,
        is_wanted: Callable[[], bool],
    ) -> None:
        token_bytes = loaded.thread.engine.memory.bytes_per_token
        self._cost.set_row(loaded.thread.cost.rates.row_s)
        if not missing:
            return
        # All of an archive is fetched, whatever of it is missing.
        if not self._cost.decide(missing, token_bytes * best.body.tokens // missing):
            self.counters.declined += 1
            return
        began = time.monotonic()
        with unnamed_file(self._folder) as file:
            first_s = await self._download(file, held, best.body, is_wanted) - began
            expected = best.body.tokens, best.body.lineage
            of = held.id, loaded.namespaces.stored(held), token_bytes, expected
            store = partial(store_archive, file, self._pages, self._ring_key, *of)
            manifest = await to_the_end(asyncio.to_thread(store))
        self._cost.observe_restored(
            find_s=first_s, load_s=time.monotonic() - began - first_s, nbytes=manifest.nbytes
        )
        self.counters.restored += 1
        log.info("fetched from the hub", conversation=short(held.id), tokens=manifest.tokens)

    async def _missing(self, held: Conversation, offer: Offer, tokens: int, ids: Ids) -> int:
        """Return how many of the first tokens are neither on disk nor in memory."""
        # The disk first: looking at the memory waits for a step.
        kept = await stored_tokens(self._profiles, held, offer, ids)
        if kept < tokens:
            kept = max(kept, *await memory_tokens(self._profiles, held, offer, ids))
        return max(0, tokens - kept)

    async def _download(
        self, file: FileIO, held: Conversation, body: Checkpoint, is_wanted: Callable[[], bool]
    ) -> float:
        """Write a blob to a file; return the time of its first bytes.

        Raises BlobMissing, or PrefillCancelled.
        """
        blobs, size, first_at = BlobCalls(self._replica.calls()), 0, 0.0
        async for part in blobs.read(held.id, body.blob):
            if not is_wanted():
                raise PrefillCancelled
            first_at = first_at or time.monotonic()
            size += len(part)
            if size > body.size_bytes:
                raise BlobMissing("the hub's blob is longer than its entry states")
            await append_to_archive(file, self._pages, part)
        return first_at

    # --- upload -----------------------------------------------------------------------

    def note(self, held: Conversation, offer: Offer) -> None:
        """Upload the checkpoint of an answer, unless another answer follows soon."""
        if self._tier.bytes_max:
            self._due.put(held.id, offer, self._tier.idle_s)

    async def run(self) -> None:
        """Upload what is due, one archive at a time, until cancelled."""
        while True:
            conversation, offer = await self._due.next()
            held = self._replica.shelf.get(conversation)
            if held is None or self._replica.hub.ending(conversation) is not None:
                continue
            if not self._replica.hub.is_linked:  # nothing of an archive is written meanwhile
                self._due.put(conversation, offer, RETRY_S)
                continue
            self._uploading = conversation
            try:
                await self._upload(held, offer)
            except AntiphonError as error:
                self._note_failure(held, offer, error)
            if self._uploading is None:  # what was uploaded behind an Evict goes too
                await self.forget(held)

    def _note_failure(self, held: Conversation, offer: Offer, error: AntiphonError) -> None:
        """Log a failed upload, and let one that may succeed later be due again."""
        self.counters.upload_failures += 1
        if times := self._lines.due(("upload", error.reason)):
            log.warning("checkpoint not uploaded", times=times, **_fields(held, error))
        is_due = self._uploading is not None and held.id not in self._due
        if error.retryable and is_due:
            wait_s = max(RETRY_S, error.retry_after_s or 0)
            self._due.put(held.id, offer, min(wait_s, RETRY_S_MAX))

    async def _upload(self, held: Conversation, offer: Offer) -> None:
        """Upload the newest checkpoint of a profile, if it is worth it and there is room."""
        spaces = self._profiles.namespaces(offer)
        if spaces is None:
            return
        namespace = spaces.stored(held)
        await self._profiles.manifests(held.id)  # behind those that are being written
        try:
            manifest = await asyncio.to_thread(self._pages.newest, held.id, namespace)
        except CheckpointMissing:
            return
        mine = [one for one in self._kept_of(held) if one.body.namespace == namespace]
        superseded = [one for one in mine if one.generation != manifest.generation]
        announced = (one for one in mine if one.generation == manifest.generation)
        last = max(announced, key=lambda one: one.create_time_ms, default=None)
        if last is not None and await _is_there(self._replica, last):
            await self._remove(superseded)  # they may still be there
            return
        if last is not None:  # a hub from a backup lost it, and may have again what was removed
            mine = _archives_of(held, self._replica.public)
            self._kept[held.id] = [o for o in mine if o.generation != manifest.generation]
            superseded = [o for o in self._kept_of(held) if o.body.namespace == namespace]
        if not self._may_announce(held, manifest):
            return
        await self._remove_unfinished()
        with unnamed_file(self._folder) as file:
            write = partial(write_archive, file, self._pages, self._ring_key, held.id, manifest)
            blob, size = await to_the_end(asyncio.to_thread(write))
            if size > min(self._tier.bytes_max, ARCHIVE_BYTES_MAX):
                log.info(
                    "checkpoint too large for the hub", conversation=short(held.id), bytes=size
                )
                return
            others = [one for one in self._all_kept() if one not in superseded]
            await self._remove(surplus(others, size, self._tier.bytes_max))
            expire_ms = now_ms() + int(self._tier.lifetime_s * 1000)
            body = Checkpoint(
                Digest(namespace), Digest(manifest.lineage), manifest.tokens, blob, size, expire_ms
            )
            self._unfinished = held.id, blob
            superseded = await self._write(held, file, body, superseded)
        await self._announce(held, manifest, body)
        self._unfinished = None
        self._due.note_uploaded(held.id, offer)
        if not await self._has_removed(held, superseded):
            self._due.put(held.id, offer, RETRY_S)

    async def _remove_unfinished(self) -> None:
        """Remove what a failed upload left at the hub: the next one is another blob.

        What can't be removed counts there until the hub deletes it.
        """
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is None:
            return
        conversation, blob = unfinished
        try:
            await BlobCalls(self._replica.calls()).remove(conversation, blob)
        except AntiphonError as error:
            fields = {"conversation": short(conversation), "reason": error.reason}
            log.warning("archives not removed", detail=error.detail, **fields)

    async def _write(
        self, held: Conversation, file: FileIO, body: Checkpoint, superseded: list[Offered]
    ) -> list[Offered]:
        """Write an archive to the hub; return which of those that it replaces are still there.

        Where the hub has no room for both, they go first: else none is replaced until they expire.
        """
        blobs, read = BlobCalls(self._replica.calls()), partial(_read, file)
        what = held.id, body.blob, body.size_bytes, read, body.expire_time_ms
        try:
            await blobs.write(*what)
        except QuotaExceeded:
            if not superseded:
                raise
            await self._remove(superseded)
            await blobs.write(*what)
            return []
        return superseded

    def _may_announce(self, held: Conversation, manifest: Manifest) -> bool:
        """Say whether a checkpoint can be announced."""
        generation = EntryId(manifest.generation)
        if manifest.tokens < self._tier.tokens_min or generation not in held.log.entries:
            return False
        return held.log.membership.may_write(self._replica.public, Kind.CHECKPOINT)

    async def _announce(self, held: Conversation, manifest: Manifest, body: Checkpoint) -> None:
        generation = EntryId(manifest.generation)
        entry = await self._replica.append(
            held.id, body, parents=(generation,), basis=EntryId(manifest.seal)
        )
        one = Offered(
            entry.id, held.id, self._replica.public, generation, body, entry.header.create_time_ms
        )
        self._kept[held.id] = [*self._kept_of(held), one]
        self.counters.uploaded += 1
        log.info("uploaded", conversation=short(held.id), tokens=body.tokens, bytes=body.size_bytes)

    # --- what is kept at the hub --------------------------------------------------------

    async def forget(self, held: Conversation) -> int:
        """Remove the archives of a conversation from the hub; return how many are gone.

        One that can't be removed now expires there. One that is being uploaded goes then.
        """
        self._due.drop(held.id)
        if self._uploading == held.id:
            self._uploading = None
        kept = list(self._kept_of(held))
        await self._has_removed(held, kept)
        return len(kept) - len(self._kept_of(held))

    async def _has_removed(self, held: Conversation, archives: list[Offered]) -> bool:
        """Remove archives of a conversation; log why not all of them are gone."""
        try:
            await self._remove(archives)
        except AntiphonError as error:
            log.warning("archives not removed", **_fields(held, error))
            return False
        return True

    async def _remove(self, archives: list[Offered]) -> None:
        """Remove archives from the hub; one that is still there counts until it expires."""
        blobs = BlobCalls(self._replica.calls())
        for each in archives:
            self._refused.append(each.id)  # it is not asked for any more in any case
            try:
                await blobs.remove(each.conversation, each.body.blob)
            except AntiphonError as error:
                if not error.retryable:  # as of a conversation that is closed
                    self._forget_one(each)
                raise
            self._forget_one(each)
            self.counters.removed += 1

    def _forget_one(self, archive: Offered) -> None:
        kept = self._kept.get(archive.conversation, [])
        self._kept[archive.conversation] = [one for one in kept if one.id != archive.id]
        if not self._kept[archive.conversation]:
            self._due.note_removed(archive.conversation)

    def _kept_of(self, held: Conversation) -> list[Offered]:
        """Return this host's own archives of a conversation that have not expired."""
        if held.id not in self._kept:
            self._kept[held.id] = _archives_of(held, self._replica.public)
        now = now_ms()
        self._kept[held.id] = [one for one in self._kept[held.id] if not one.has_expired(now)]
        return self._kept[held.id]

    def _all_kept(self) -> list[Offered]:
        for held in self._replica.shelf.values():
            self._kept_of(held)
        now = now_ms()  # those of conversations that were closed since are there until they expire
        left = {i: [o for o in kept if not o.has_expired(now)] for i, kept in self._kept.items()}
        self._kept = {i: kept for i, kept in left.items() if kept or i in self._replica.shelf}
        self._due.note_kept({i for i, kept in left.items() if kept})
        return [one for kept in self._kept.values() for one in kept]


def _archives_of(held: Conversation, author: PublicKey) -> list[Offered]:
    return [one for one in offered(held) if one.author == author]


async def _is_there(replica: Replica, archive: Offered) -> bool:
    """Ask the hub whether it has an archive."""
    state = await BlobCalls(replica.calls()).stat(archive.conversation, archive.body.blob)
    return state.complete


def _patience_s(missing: int, loaded: Loaded) -> float:
    """Return how long a download may take: not longer than computing, where that is known."""
    row_s = loaded.thread.cost.rates.row_s
    return max(FETCH_S_MIN, missing * row_s) if row_s is not None else FETCH_S


def _read(file: FileIO, at: int) -> bytes:
    file.seek(at)
    return file.read(BLOB_CHUNK_BYTES) or b""


def _fields(held: Conversation, error: AntiphonError) -> dict[str, str]:
    return {"conversation": short(held.id), "reason": error.reason, "detail": error.detail}
