"""Erases a long conversation in steps, between which others write (spec/04-link §9).

The pages of what is erased are overwritten, which takes as long as it took to write them, and a
store has one writer. So a step has as many rows as take STEP_S, which depends on their bodies and
on the disk.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from replica.ids import ConversationId
from replica.io.store import statements as sql
from replica.io.store.commit import GroupCommit
from replica.io.store.transaction import Statement
from replica.refusals import StoreFull

ROWS_MIN, ROWS_MAX = 16, 4_096
"""Rows of a step: of the greatest entries the least takes some 0.2 s on a slow disk."""
STEP_S = 0.05
"""Time of a step, with what others write in its transaction."""

Rows = Callable[..., Awaitable[list[tuple[Any, ...]]]]
"""Runs a query on the store's reading connection."""


class ErasingSteps:
    """The steps that erase the entries of one conversation, which nobody reads any more."""

    def __init__(self, commit: GroupCommit, rows: Rows, conversation: ConversationId) -> None:
        """Use the store's writer and its reading connection."""
        self._commit, self._rows, self._conversation = commit, rows, conversation
        self.erased = 0
        """Rows that are gone."""
        self._is_tight = False
        """Whether the disk has no room for more than a row at a time."""

    async def run(self) -> None:
        """Erase all entries. Raises StoreError: then some are left."""
        last, count = -1, ROWS_MIN
        while found := await self._rows(sql.ROWS_OF, self._conversation, last):
            at = 0
            while at < len(found):
                part = found[at : at + count]
                try:
                    count = await self._step(part)
                except StoreFull:
                    # What a step overwrites is in the write-ahead log until that is emptied.
                    await self._commit.write([], truncate=True)
                    if self._is_tight:
                        raise
                    self._is_tight, count = True, 1
                    continue
                at += len(part)
            (last,) = found[-1]

    async def _step(self, rows: list[tuple[Any, ...]]) -> int:
        """Erase rows; return how many the next step may have."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._commit.write([Statement(sql.DELETE_ROW, rows)], truncate=self._is_tight)
        self.erased += len(rows)
        if self._is_tight:
            return 1
        is_short = loop.time() - began < STEP_S
        return min(ROWS_MAX, 2 * len(rows)) if is_short else max(ROWS_MIN, len(rows) // 2)
