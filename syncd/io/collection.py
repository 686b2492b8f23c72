"""The garbage collector of a hub's process: its long passes are rare (LINK-92).

A full pass looks at every object of every conversation, and holds the loop meanwhile. So
what stayed at one pass is left out of those that follow, as is a long log that was just
loaded, and a full one runs after some time, not whenever the process has grown. The others
come every second, and earlier where much is new. A conversation that leaves memory needs
none: it is freed at once (DECISIONS D547).
"""

import asyncio
import gc
import time
from contextlib import suppress

from syncd.shelves import HubShelf

NEVER = 1_000_000_000
LOADED_BYTES_MAX = 4 * 1024 * 1024
"""Memory of conversations loaded since the last pass that a pass looks at: some 10 ms."""
FULL_PASS_S = 900.0
PASS_S = 1.0
"""Most time between two passes over what is new."""
YOUNG_PASSES = 2
"""Collections of Python's middle generation, of some 7,000 objects each, that bring a pass."""
_YOUNG_OBJECTS, _YOUNG_COLLECTIONS = 700, 10
"""The bounds of its first two generations until Python 3.12; the first one grew since."""
_MIDDLE = 1


class Collection:
    """Passes over what is new, every second at least, and over all objects when that is due."""

    def __init__(self, shelf: HubShelf) -> None:
        """Watch what a shelf loads."""
        self._shelf = shelf
        self._passed_at = time.monotonic()
        self._loaded_bytes = 0

    def is_due(self, now: float) -> bool:
        """Say whether a full pass is due, at a time in seconds."""
        return now >= self._passed_at + FULL_PASS_S

    def collect(self, now: float) -> None:
        """Free garbage, of all objects if that is due; leave what is alive out of later passes."""
        loaded = self._shelf.loaded_bytes - self._loaded_bytes
        self._loaded_bytes = self._shelf.loaded_bytes
        if self.is_due(now):
            gc.unfreeze()
            self._passed_at = now
        elif loaded > LOADED_BYTES_MAX:
            gc.freeze()  # what else is new, garbage too, waits for a full pass
            return
        gc.collect()
        gc.freeze()

    async def run(self) -> None:
        """Collect until cancelled; then restore the defaults."""
        before, is_much_new = gc.get_threshold(), asyncio.Event()
        loop, young = asyncio.get_running_loop(), 0

        def note(phase: str, info: dict[str, int]) -> None:
            """Count a collection, in whichever thread it runs."""
            nonlocal young
            if phase == "stop" and info["generation"] == _MIDDLE:
                young += 1
                if young == YOUNG_PASSES:
                    loop.call_soon_threadsafe(is_much_new.set)

        gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_COLLECTIONS, NEVER)
        gc.callbacks.append(note)
        try:
            while True:
                self.collect(time.monotonic())
                young = 0
                is_much_new.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(PASS_S):
                        await is_much_new.wait()
        finally:
            gc.callbacks.remove(note)
            gc.set_threshold(*before)
            gc.unfreeze()
