"""Lines about something that goes on, as a full disk: a bounded number of them."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

SAY_S = 60.0
"""Time within which a line about the same state is not repeated."""
STATES_MAX = 64
"""States remembered, and so the most lines within SAY_S: what differs may be a peer's words."""


class Repeated:
    """Says which lines are due: the first about a state, then at most one a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing said."""
        self._clock = clock
        self._said: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def due(self, state: Hashable) -> int:
        """Note that a state was met again; return how often since its last line, 0 if none is due.

        A state that was not met before is due at once, unless lines about STATES_MAX others are
        younger than SAY_S.
        """
        now = self._clock()
        said, unsaid = self._said.get(state, (None, 0))
        if said is not None and now - said < SAY_S:
            self._said[state] = said, unsaid + 1
            return 0
        if said is None and len(self._said) == STATES_MAX:
            oldest, _ = next(iter(self._said.values()))
            if now - oldest < SAY_S:
                return 0
            self._said.popitem(last=False)
        self._said[state] = now, 0
        self._said.move_to_end(state)
        return unsaid + 1
