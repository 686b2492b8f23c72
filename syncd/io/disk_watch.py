"""The disk of a hub, as it changes: its size, and whether little of it is left (LIM-15)."""

import asyncio
from pathlib import Path
from shutil import disk_usage

import structlog

from replica import limits
from syncd.bounds import DiskQuota

log = structlog.get_logger()

LOOK_S = 10.0
"""Interval between two looks at the disk."""


def share_of(folder: Path) -> float:
    """Return the bytes that conversations may occupy on the disk of a folder."""
    return limits.DISK_SHARE * disk_usage(folder).total


class DiskWatch:
    """Keeps a quota in step with the disk, and says when creators are refused for it."""

    def __init__(self, quota: DiskQuota, folder: Path | None) -> None:
        """Watch the disk of `folder`; None where the operator has set the bound."""
        self._quota = quota
        self._folder = folder
        self._is_scarce = False
        self._is_denied = False

    def look(self) -> None:
        """Allow conversations their share of the disk as it is now; log what that changes."""
        if self._folder is not None:
            self._resize(self._folder)
        if self._quota.is_scarce and not self._is_scarce:
            log.warning("little disk is left for conversations", bytes=int(self._quota.left))
        elif self._is_scarce and not self._quota.is_scarce:
            log.info("there is disk for conversations again", bytes=int(self._quota.left))
        self._is_scarce = self._quota.is_scarce

    def _resize(self, folder: Path) -> None:
        """Allow a share of the disk; the last one where it can't be looked at, which is said."""
        try:
            self._quota.resize(share_of(folder))
        except OSError as error:
            if not self._is_denied:
                log.warning("the disk can't be looked at", path=str(folder), detail=str(error))
            self._is_denied = True
        else:
            if self._is_denied:
                log.info("the disk can be looked at again", path=str(folder))
            self._is_denied = False

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)
