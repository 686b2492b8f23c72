"""Work of several payers that waits for its turn. Pure."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

Work = TypeVar("Work")


class PayerRing(Generic[Work]):
    """Work of several payers, one piece of each in turn.

    Who comes anew waits behind all others: a fresh key is no way to overtake them.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._waiting: OrderedDict[bytes, deque[Work]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many pieces wait."""
        return sum(map(len, self._waiting.values()))

    def add(self, payer: bytes, work: Work) -> None:
        """Let work wait; that of one payer stays in its order."""
        self._waiting.setdefault(payer, deque()).append(work)

    def next(self) -> Work:
        """Remove the piece whose turn it is and return it; there is one."""
        payer, waiting = self._waiting.popitem(last=False)
        work = waiting.popleft()
        if waiting:
            self._waiting[payer] = waiting
        return work
