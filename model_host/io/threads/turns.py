"""The turns of a host's engine threads, and whether any of them computes an answer.

Work that waits for an idle host (Warm, audits), or that is short beside answers (replays), has
to know of the answers of all profiles, not of its own thread alone (spec/07-host §6, §10).
"""

from collections.abc import Callable

from model_host.io.threads.fair_lock import FairLock

Wake = Callable[[], None]
"""Lets a thread look again at what it may do. Any thread may call it."""


class Turns(FairLock):
    """One thread computes at a time; all methods are called by the one whose turn it is."""

    def __init__(self) -> None:
        """Begin with no threads."""
        super().__init__()
        self._wakes: list[Wake] = []
        self._answering: set[Wake] = set()

    @property
    def is_answering(self) -> bool:
        """Whether a thread computes an answer. Outside a turn this may have just changed."""
        return bool(self._answering)

    def join(self, wake: Wake) -> None:
        """Add a thread, which is woken whenever the last answer has ended."""
        self._wakes.append(wake)

    def leave(self, wake: Wake) -> None:
        """Remove a thread; its answers are computed no further."""
        self._wakes.remove(wake)
        self.note(wake, is_answering=False)

    def note(self, wake: Wake, *, is_answering: bool) -> None:
        """Note whether a thread, named by its `wake`, has answers to compute."""
        if is_answering:
            self._answering.add(wake)
        elif wake in self._answering:
            self._answering.remove(wake)
            if not self._answering:
                for each in self._wakes:
                    each()
