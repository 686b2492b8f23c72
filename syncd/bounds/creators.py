"""Which creators a hub has known for a while, and which are new to it (DECISIONS D414).

Pure, and private to budget.py. Keys are free, so both tables are bounded, and a flood of new
keys takes the place of none that is known.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from replica.ids import PublicKey
from replica.limits import CREATORS_MAX, NEWCOMER_S

_LOOKS = 8
"""Creators looked at to find one to forget, so that a call costs the same for any number."""

IsCounted = Callable[[PublicKey], bool]
"""Says whether recent work in a creator's conversations still counts."""
_V = TypeVar("_V")


class Creators:
    """The known creators, the one used longest ago first, and the new ones, the oldest first."""

    def __init__(self) -> None:
        """Start with none."""
        self._known: OrderedDict[PublicKey, None] = OrderedDict()
        self._since: OrderedDict[PublicKey, float] = OrderedDict()
        """When each new one was first seen, in seconds."""

    def __len__(self) -> int:
        """Count the creators that are remembered."""
        return len(self._known) + len(self._since)

    def note_known(self, creator: PublicKey) -> None:
        """Note a creator from before the start."""
        if len(self._known) < CREATORS_MAX:
            self._known[creator] = None

    def is_new(self, creator: PublicKey, now: float, is_counted: IsCounted) -> bool:
        """Say whether a creator whose conversation is used now was unknown NEWCOMER_S ago.

        In a full table it takes the place of the first one of which nothing counts. Where all
        that are looked at have work that counts, it is tried again with its next call.
        """
        if creator in self._known:
            self._known.move_to_end(creator)
            return False
        since = self._since.get(creator)
        if since is None:
            if _make_room(self._since, is_counted):
                self._since[creator] = now
            return True
        if now - since < NEWCOMER_S:
            return True
        if _make_room(self._known, is_counted):
            del self._since[creator]
            self._known[creator] = None
        return False


def _make_room(table: OrderedDict[PublicKey, _V], is_counted: IsCounted) -> bool:
    """Forget a creator of which nothing counts, if the table is full; False without one."""
    if len(table) < CREATORS_MAX:
        return True
    for _ in range(_LOOKS):
        creator = next(iter(table))
        if not is_counted(creator):
            del table[creator]
            return True
        table.move_to_end(creator)
    return False
