"""A hub that times its event loop: python -m bench.timed_hub, with the flags of syncd.

Each line on stdin is answered by one line of JSON on stdout: the longest time that one
step held the loop since the line before, the CPU time of the process, its memory and its
open files. Times of a step are CPU times of the loop's thread, so that other processes
of the machine do not count.
"""

import asyncio
import gc
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from syncd.__main__ import main

_LOOK_S, _LONG_S = 0.004, 0.015
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_run_step: Any = asyncio.Handle._run  # the one place every step passes


class Steps:
    """The longest step of the loop since it was read last."""

    def __init__(self) -> None:
        """Start without steps."""
        self.longest_s = 0.0
        self.collection_s = 0.0
        """The longest pass of the garbage collector, which is part of a step."""
        self._began_s = self._step_began_s = 0.0
        self._seen = ""
        self.name = ""

    def install(self) -> None:
        """Time every step of every loop of this process from now on."""

        loop_thread = threading.get_ident()

        def run(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            self._step_began_s = time.monotonic()
            _run_step(handle)
            self._step_began_s = 0.0
            took_s = time.thread_time() - began
            if took_s > self.longest_s:
                self.longest_s, self.name = took_s, self._seen or repr(handle)[:200]
            self._seen = ""

        def look() -> None:
            """Note where the loop is while a step takes long."""
            while True:
                time.sleep(_LOOK_S)
                began = self._step_began_s
                if began and time.monotonic() - began > _LONG_S:
                    frame = sys._current_frames().get(loop_thread)  # a profiler
                    stack = traceback.extract_stack(frame)[-7:]
                    self._seen = " < ".join(f"{at.name}:{at.lineno}" for at in reversed(stack))

        setattr(asyncio.Handle, "_run", run)  # noqa: B010  # an attribute mypy knows as a method
        threading.Thread(target=look, daemon=True).start()
        gc.callbacks.append(self._note_collection)

    def _note_collection(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self.collection_s = max(self.collection_s, time.thread_time() - self._began_s)

    def report(self) -> dict[str, object]:
        """Return the figures, and begin anew."""
        found: dict[str, object] = {
            "hold_ms": 1_000 * self.longest_s,
            "step": self.name,
            "collection_ms": 1_000 * self.collection_s,
            "cpu_s": time.process_time(),
            "rss_bytes": _PAGE_BYTES * int(Path("/proc/self/statm").read_text().split()[1]),
            "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        }
        self.longest_s, self.collection_s, self.name = 0.0, 0.0, ""
        return found


def _answer(steps: Steps) -> None:
    for _line in sys.stdin:
        print(json.dumps(steps.report()), flush=True)


if __name__ == "__main__":
    timed = Steps()
    timed.install()
    threading.Thread(target=_answer, args=(timed,), daemon=True).start()
    sys.exit(main())
