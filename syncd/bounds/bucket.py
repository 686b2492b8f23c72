"""A number of things that may be done at once, and then so many per second.

Pure; time is an argument, in seconds.
"""


class Bucket:
    """What is left of it, which grows back while less is taken."""

    def __init__(self, per_s: float, most: float) -> None:
        """Start full."""
        self._per_s = per_s
        self._most = most
        self._left = most
        self._at = float("-inf")

    def take(self, now: float) -> bool:
        """Take one; False if none is left."""
        left = self._left_at(now)
        self._left, self._at = (left - 1 if left >= 1 else left), now
        return left >= 1

    def wait_s(self, now: float) -> float:
        """Return the time until one is left."""
        return max(0.0, (1 - self._left_at(now)) / self._per_s)

    def _left_at(self, now: float) -> float:
        return min(self._most, self._left + self._per_s * max(0.0, now - self._at))
