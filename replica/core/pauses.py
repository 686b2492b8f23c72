"""Growing pauses between tries to reach a hub or to open a conversation (DECISIONS D30)."""

RECONNECT_FIRST_S = 0.1
RECONNECT_MAX_S = 5.0
REOPEN_FIRST_S = 1.0
REOPEN_MAX_S = 60.0
"""Longest pause before a closed conversation that is followed is opened again."""


class Pauses:
    """Pauses that double with each try, up to a bound."""

    def __init__(self, first_s: float, max_s: float) -> None:
        """Start with `first_s`, and never exceed `max_s`; both in seconds."""
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def next_s(self) -> float:
        """Return the pause before the next try, in seconds, and double the one after it."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._max_s)
        return pause_s

    def reset(self) -> None:
        """Start over with the first pause, since a try has succeeded."""
        self._next_s = self._first_s
