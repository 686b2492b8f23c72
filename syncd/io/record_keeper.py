"""Keeps the records of a running hub's conversations in its store (DECISIONS D545).

A record is written once its conversation has not changed for some seconds, or a minute after
it began to change, so a busy one costs little. A start after a kill reads those whose members
changed since (DECISIONS D555).
"""

import asyncio
import time
from collections.abc import Collection, Iterable
from math import inf

import structlog

from replica.conversation import Conversation, Stored
from replica.errors import StoreError
from replica.ids import ConversationId
from replica.io import Store
from replica.log import Entry
from syncd.hub import Hub
from syncd.shelves import Known, records

log = structlog.get_logger()

QUIET_S = 3.0
"""Time without a change after which a record is written."""
OVERDUE_S = 60.0
"""Time after which a record is written whether changes go on or not."""
CHECK_S, PAUSE_S = 1.0, 0.1
"""Pause behind a look that found nothing to write, and behind a write."""
AGAIN_S = 60.0
"""Delay of the next attempt to write what the disk refused."""
BATCH, BATCH_AT_STOP = 64, 256
"""Records of one write; appends that come meanwhile wait for it."""


class RecordKeeper:
    """Reads the records at the start, and writes those that changed."""

    def __init__(self, hub: Hub, store: Store) -> None:
        """Use the hub and its store; `start` begins to write."""
        self._hub = hub
        self._store = store
        self._unrecorded = records.Unrecorded()
        self._task: asyncio.Task[None] | None = None
        self._not_before = -inf
        """Time of the next attempt, behind one that the disk refused."""

    async def load(self, all_stored: Iterable[Stored]) -> dict[Stored, Known]:
        """Return the records that count for what is stored, and erase those of nothing."""
        deleted = self._hub.deleted
        stored = {one.conversation: one for one in all_stored if one.conversation not in deleted}
        self._unrecorded.entries = sum(one.entries for one in stored.values())
        found: dict[Stored, Known] = {}
        try:
            rows = await self._store.records.load()
            for conversation, data in rows.items():
                known = records.unpack(data)
                now = stored.get(conversation)
                counts = known.for_log(now) if known is not None and now is not None else None
                if now is not None and counts is not None:
                    found[now] = counts
            await self._store.records.drop_earlier()
            await self._store.records.write({}, rows.keys() - stored.keys())
        except StoreError as error:
            log.warning("records not read or not erased", detail=error.detail)
        without = (c for c, one in stored.items() if one not in found)
        self._unrecorded.note(without, time.monotonic())
        return found

    def note(self, entries: Collection[Entry]) -> None:
        """Note entries that were stored, or refused."""
        self._unrecorded.entries += len(entries)
        self._unrecorded.note({entry.conversation for entry in entries}, time.monotonic())

    def note_loaded(self, held: Conversation) -> None:
        """Note a conversation that is about to be in memory, if its record can't be the same."""
        if held.damage or self._hub.shelf.apart.is_outdated(held.id):
            self._unrecorded.note((held.id,), time.monotonic())

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._run(), name="hub records")

    async def stop(self) -> None:
        """Write all that changed, then stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while await self.write_unchanged(inf, BATCH_AT_STOP):
            pass

    async def failed(self) -> None:
        """Raise the error that ended the writing."""
        assert self._task is not None, "start() comes first"
        await asyncio.shield(self._task)

    async def write_unchanged(self, until: float, count: int = BATCH) -> bool:
        """Write records of conversations unchanged since `until`; say whether there were any."""
        now = time.monotonic()
        is_due = now >= self._not_before or until == inf  # a stop is the last chance
        overdue = now - OVERDUE_S
        taken = self._unrecorded.take(until, count, overdue=overdue) if is_due else []
        left: Collection[ConversationId] = taken
        try:
            refused = await self._write(taken) if taken else {}
            left = refused.keys()
        finally:  # what is left is noted again also where a stop cuts it short
            if left:
                self._unrecorded.note(left, now)
                self._not_before = now + AGAIN_S
        if refused:
            detail = next(iter(refused.values())).detail
            log.warning("records not written, a start reads these logs", detail=detail)
        return bool(taken) and not refused

    async def _write(self, conversations: list[ConversationId]) -> dict[ConversationId, StoreError]:
        rows: dict[ConversationId, bytes] = {}
        without: set[ConversationId] = set()
        for conversation in conversations:
            known = records.record_of(self._hub.shelf, conversation)
            if conversation in self._hub.shelf.folding.held:  # looked at once its fold is over
                self._unrecorded.note((conversation,), time.monotonic())
            elif known is None:
                without.add(conversation)
            else:
                rows[conversation] = records.pack(known)
            await asyncio.sleep(0)  # one with many members takes a while
        refused = await self._store.records.write(rows, without)
        if deleted := rows.keys() & self._hub.deleted:  # the deletion may have been before it
            refused |= await self._store.records.write({}, deleted)
        return refused

    async def _run(self) -> None:
        while True:
            has_written = await self.write_unchanged(time.monotonic() - QUIET_S)
            await asyncio.sleep(PAUSE_S if has_written else CHECK_S)
