"""The order in which contexts are rendered (spec/07-host §4, §6). Pure.

Those who cause renderings come in turn, one rendering each. Answers go before the calls that
only count or warm; behind ANSWERS_IN_A_ROW_MAX of them such a call has its turn too.
"""

from typing import Generic, TypeVar

from model_host.scheduling.payer_ring import PayerRing
from replica.limits import ANSWERS_IN_A_ROW_MAX

Work = TypeVar("Work")


class RenderTurns(Generic[Work]):
    """The renderings that wait."""

    def __init__(self) -> None:
        """Begin with none."""
        self._answers = PayerRing[Work]()
        self._calls = PayerRing[Work]()
        self._answers_in_a_row = 0

    def __len__(self) -> int:
        return len(self._answers) + len(self._calls)

    def add(self, payer: bytes, work: Work, *, for_answer: bool) -> None:
        """Let work wait for its turn; those of one payer stay in their order."""
        (self._answers if for_answer else self._calls).add(payer, work)

    def next(self, *, with_calls: bool = True) -> Work | None:
        """Return the work whose turn it is, None if nothing waits.

        Without `with_calls`, it is that of an answer.
        """
        calls_first = self._answers_in_a_row >= ANSWERS_IN_A_ROW_MAX or not self._answers
        if with_calls and self._calls and calls_first:
            self._answers_in_a_row = 0
            return self._calls.next()
        self._answers_in_a_row += 1
        return self._answers.next() if self._answers else None
