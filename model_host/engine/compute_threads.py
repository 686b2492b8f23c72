"""The compute threads of a step; imported before torch.

Threads wait for each other behind every kernel. On free cores two decode a third faster than
one; where other processes need a core too, they decode at half the speed of one or less. So
steps of few rows, whose kernels are short, are computed by all threads or by one fewer,
whichever was faster lately (DECISIONS D395). How many compute changes no bit: the self-test
compares them (model_host/engine/numerics.py).
"""

import importlib.util
import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# Rounds, some 40 us, that a thread spins before it sleeps. OpenMP's own number, 3 ms, is about a
# time slice: where two engines compute, each thread waits for one that the other's spinning
# threads keep from its core (DECISIONS D525). Under an active policy GNU's OpenMP spins as long
# where more threads than cores exist, those of a second profile for example, and a tenth of that
# without it (D532). Other libraries spin for ever under that policy. Whoever sets either one has
# decided.
_SPIN = {"GOMP_SPINCOUNT": "1000", "OMP_WAIT_POLICY": "active"}


def spin_settings(environment: Mapping[str, str], torch_folder: Path) -> Mapping[str, str]:
    """Return the settings to add to an environment in which torch, of a folder, is imported."""
    places = (torch_folder / "lib", torch_folder.parent / "torch.libs")
    has_gomp = any(True for place in places for _ in place.glob("libgomp*"))
    return _SPIN if has_gomp and not _SPIN.keys() & environment.keys() else {}


_torch = importlib.util.find_spec("torch")
if _torch is not None and _torch.origin is not None:
    os.environ.update(spin_settings(os.environ, Path(_torch.origin).parent))

THREADS_MAX = 4 * (os.cpu_count() or 1)
"""Compute threads that may be asked for. More threads than CPUs wait for each other. Each thread of
the host that computes starts as many, and tens of thousands end the process without a reason."""
FEW_ROWS = 32
"""Rows of a step up to which the number of threads is chosen by measured time."""
PROBE_STEPS = 3
RECENT_STEPS = 9
PROBE_FIRST = 4
"""Steps behind a change until the other number is tried."""
PROBE_LAST = (64, 1024)
"""The same in the end, with all threads and with one fewer: to try all of them costs more."""
FASTER = 0.95
"""Share of the other's time below which a number is faster."""
SLOWER = 1.25
"""Share of the time with all threads above which one step shows that one fewer is slower."""


class ThreadChoice:
    """All threads or one fewer for steps of about equal size. Pure: it is told the times."""

    def __init__(self, threads: int) -> None:
        """Begin with all `threads`."""
        self._counts = (threads, max(1, threads - 1))
        self._best = 0
        self._recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self._probed: list[float] = []
        self._interval = self._left = PROBE_FIRST

    @property
    def threads(self) -> int:
        """The number of threads of the next step."""
        return self._counts[self._best if self._left else 1 - self._best]

    def took(self, seconds: float) -> None:
        """Learn the time of the step that was computed with `threads`."""
        if self._counts[0] == self._counts[1]:
            return
        if self._left:
            self._recent.append(seconds)
            self._left -= 1
            return
        self._probed.append(seconds)
        # On free cores a probe takes nearly twice as long, and the first ones follow closely. One
        # of all threads is rare, and would be ended by any step that another process delays.
        is_slower = self._best == 0 and seconds > SLOWER * statistics.median(self._recent)
        if is_slower or len(self._probed) == PROBE_STEPS:
            self._decide(is_slower=is_slower)

    def _decide(self, *, is_slower: bool) -> None:
        last = PROBE_LAST[self._best]
        if is_slower:
            self._interval = last
        elif statistics.median(self._probed) < FASTER * statistics.median(self._recent):
            self._best = 1 - self._best
            self._recent = deque(self._probed, RECENT_STEPS)
            self._interval = PROBE_FIRST
        else:
            self._interval = min(2 * self._interval, last)
        self._left, self._probed = self._interval, []


class StepThreads:
    """The compute threads of the steps of one engine."""

    def __init__(self, threads: int, *, may_vary: bool) -> None:
        """Compute with `threads`; with one fewer too where that `may_vary` without a change."""
        self._threads = threads
        self._may_vary = may_vary
        self._choices: dict[int, ThreadChoice] = {}
        self._known = threading.local()
        self._known.is_set = True  # the thread that loads has set its number

    @contextmanager
    def computing(self, rows: int) -> Iterator[None]:
        """Compute a step of `rows` rows in the block."""
        if not hasattr(self._known, "is_set"):
            set_threads(self._threads)
            self._known.is_set = True
        if rows > FEW_ROWS or not self._may_vary:
            yield
            return
        choice = self._choices.setdefault(rows.bit_length(), ThreadChoice(self._threads))
        with compute_threads(choice.threads):
            began = time.perf_counter()
            yield
            choice.took(time.perf_counter() - began)


_guard = threading.Lock()
_outside: list[int] = []
"""The numbers behind the blocks of `compute_threads` in progress, in any thread."""


def process_threads() -> int:
    """Return the number of compute threads behind all blocks in progress.

    torch gives a thread that asks first the number that any thread set last, for as long as it
    lives: a profile loaded beside a step of another one would compute with fewer for ever.
    """
    import torch

    with _guard:
        return _outside[0] if _outside else torch.get_num_threads()


def set_threads(count: int) -> None:
    """Let torch compute with `count` threads in this thread, and in new ones."""
    import torch

    if count != torch.get_num_threads():
        torch.set_num_threads(count)


@contextmanager
def compute_threads(count: int) -> Iterator[None]:
    """Let torch compute with `count` threads in the block, and with as many as before behind it."""
    import torch

    before = torch.get_num_threads()
    if count == before:
        yield
        return
    with _guard:
        _outside.append(before)
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _guard:
            torch.set_num_threads(before)
            _outside.remove(before)
