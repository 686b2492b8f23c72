"""The disk of a host, as it changes: checkpoints make room for the log (DECISIONS D585)."""

import asyncio
from contextlib import suppress
from functools import partial

import structlog

from model_host.errors import CheckpointDiskFull, CheckpointWriteFailed
from model_host.io.answers import Host
from model_host.io.files import Checkpoints
from replica.io import Repeated, to_the_end

log = structlog.get_logger()

LOOK_S = 10.0
"""Interval between two looks at the disk, unless the store is full."""


class DiskWatch:
    """Keeps the reserve of the disk free of checkpoints, and says when the store takes nothing."""

    def __init__(self, host: Host, pages: Checkpoints) -> None:
        """Watch the disk of `pages`, and the store of `host`."""
        self._host = host
        self._pages = pages
        self._lines = Repeated()
        self._said: set[str] = set()
        """The lines that hold until another one says that it is over."""

    async def run(self) -> None:
        """Look again and again, and as soon as the store is full, until cancelled."""
        while True:
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._host.store_is_full.wait()

    async def look(self) -> None:
        """Let checkpoints make room, and log what has changed."""
        is_full = self._host.store_is_full.is_set()
        self._host.store_is_full.clear()
        make_room = partial(self._pages.make_room, is_full=is_full)
        try:
            await to_the_end(asyncio.to_thread(make_room))
        except CheckpointDiskFull as error:
            if times := self._lines.due(error.reason):
                self._said.add("disk")
                log.warning("little disk is left for the log", detail=error.detail, times=times)
        except CheckpointWriteFailed as error:
            if times := self._lines.due(error.reason):
                self._said.add("look")
                log.warning("the disk can't be looked at", detail=error.detail, times=times)
        else:
            if self._is_over("disk"):
                log.info("there is disk for the log again")
            if self._is_over("look"):
                log.info("the disk can be looked at again")
        unstored = self._host.unstored
        reasons = ", ".join(sorted(unstored))
        if not unstored:
            if self._is_over("store"):
                log.info("all conversations are stored again")
        elif times := self._lines.due(f"unstored: {reasons}"):
            self._said.add("store")
            count = unstored.total()
            log.warning("conversations are not stored", reason=reasons, count=count, times=times)

    def _is_over(self, line: str) -> bool:
        """Say whether a line was said, and forget it: what it said is over."""
        was_said = line in self._said
        self._said.discard(line)
        return was_said
