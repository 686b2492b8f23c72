"""The garbage collector of a hub's process: its long passes are rare (LINK-92).

A full pass looks at every object of every conversation, and holds the loop meanwhile. So
what has stayed for a second is left out of the passes that follow, as is a long log that was
just loaded, and a full one runs after some time or some evictions, not whenever the process
has grown.
"""

import asyncio
import gc
import time

from syncd.shelf import HubShelf

NEVER = 1_000_000_000
EVICTED_BYTES_MAX = 256 * 1024 * 1024
"""Memory of evicted conversations that may wait for a full pass."""
LOADED_BYTES_MAX = 4 * 1024 * 1024
"""Memory of conversations loaded since the last pass that a pass looks at: some 10 ms."""
FULL_PASS_S = 900.0
PASS_S = 1.0
"""Time between two passes over what is new."""


class Collection:
    """Passes over what is new every second, and over all objects when that is due."""

    def __init__(self, shelf: HubShelf) -> None:
        """Watch the evictions of a shelf."""
        self._shelf = shelf
        self._passed_at = time.monotonic()
        self._evicted_bytes = self._loaded_bytes = 0

    def is_due(self, now: float) -> bool:
        """Say whether a full pass is due, at a time in seconds."""
        evicted = self._shelf.evicted_bytes - self._evicted_bytes
        return evicted > EVICTED_BYTES_MAX or now >= self._passed_at + FULL_PASS_S

    def collect(self, now: float) -> None:
        """Free garbage, of all objects if that is due; leave what is alive out of later passes."""
        loaded = self._shelf.loaded_bytes - self._loaded_bytes
        self._loaded_bytes = self._shelf.loaded_bytes
        if self.is_due(now):
            gc.unfreeze()
            self._passed_at, self._evicted_bytes = now, self._shelf.evicted_bytes
        elif loaded > LOADED_BYTES_MAX:
            gc.freeze()  # what else is new, garbage too, waits for a full pass
            return
        gc.collect()
        gc.freeze()

    async def run(self) -> None:
        """Collect until cancelled; then restore the defaults."""
        before = gc.get_threshold()
        gc.set_threshold(*before[:2], NEVER)
        try:
            while True:
                self.collect(time.monotonic())
                await asyncio.sleep(PASS_S)
        finally:
            gc.set_threshold(*before)
            gc.unfreeze()
