"""Lines about something that goes on, as a full disk: a bounded number of them."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

SAY_S = 60.0
"""Time within which a line about the same state is not repeated."""
STATES_MAX = 64
"""States remembered; of one more, the one that was said first is forgotten."""


class Repeated:
    """Says which lines are due: the first about a state, then at most one a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing said."""
        self._clock = clock
        self._said: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def due(self, state: Hashable) -> int:
        """Note that a state was met again; return how often since its last line, 0 if none is due.

        A state that was not met before is due at once, whatever was said about others.
        """
        now = self._clock()
        said, unsaid = self._said.get(state, (None, 0))
        if said is not None and now - said < SAY_S:
            self._said[state] = said, unsaid + 1
            return 0
        self._said[state] = now, 0
        self._said.move_to_end(state)
        if len(self._said) > STATES_MAX:
            self._said.popitem(last=False)
        return unsaid + 1
