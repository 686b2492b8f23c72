"""A lock that threads get in the order in which they ask for it."""

import threading
from collections import deque


class FairLock:
    """A context manager. With an ordinary lock, a thread that asks again at once may win always."""

    def __init__(self) -> None:
        """Begin with a free lock."""
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._is_held = False

    @property
    def waiting(self) -> int:
        """Return the number of threads that wait."""
        return len(self._waiting)

    def __enter__(self) -> None:
        """Wait for the lock."""
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        mine.acquire()

    def __exit__(self, *_error: object) -> None:
        """Hand the lock to the thread that has waited longest."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_held = False
