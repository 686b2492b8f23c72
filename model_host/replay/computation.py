"""The work of one replay in order, for a driver that performs it between steps (spec/07-host §10).

Pure.

    while computation.work is not None:
        result = computation.work(rows)          in the engine's thread
        findings = computation.receive(result)   in any other
"""

from collections.abc import Callable, Generator
from functools import partial
from itertools import zip_longest

from model_host.kv import SLAB_TOKENS
from model_host.replay.pages import Compared, Computed, ReplayPages
from model_host.replay.passes import Pass
from model_host.replay.replay import Replay
from replica.conversation import Finding

Result = Computed | Compared | None
Work = Callable[[int], Result]
"""Computes, compares or frees pages; the argument is the most rows it may compute."""


class Computation:
    """All passes of a replay, chunk by chunk."""

    def __init__(self, replay: Replay, pages: ReplayPages, conversation: bytes) -> None:
        """Compute in `pages`; `conversation` is the one whose cached pages are compared."""
        self.done_tokens = 0
        """Tokens computed so far."""
        self._replay = replay
        self.pages = pages
        """In which it computes; to be freed by the caller."""
        self._conversation = conversation
        self._found: list[Finding] = []
        self._order = self._in_order()
        self.work: Work | None = next(self._order, None)
        """The work to perform next; None at the end."""

    @property
    def total_tokens(self) -> int:
        """The number of tokens to compute."""
        return self._replay.tokens

    def receive(self, result: Result) -> list[Finding]:
        """Check the result of the work; return the findings that are complete with it."""
        try:
            self.work = self._order.send(result)
        except StopIteration:
            self.work = None
        found, self._found = self._found, []
        return found

    def _in_order(self) -> Generator[Work, Result, None]:
        passes = self._replay.passes
        for part, upcoming in zip_longest(passes, passes[1:]):
            at = part.start
            while at < len(part.ids):
                computed = yield partial(self.pages.compute, part, at)
                assert isinstance(computed, Computed), "a chunk was to be computed"
                at = max(at, computed.stop)
                self.done_tokens = min(self.done_tokens + computed.tokens, self.total_tokens)
                self._found += self._replay.receive(part, computed)
            slabs: list[Compared] = []
            for start in _borders(part) if self._replay.is_rebuild else ():
                compared = yield partial(self._compare, part, start)
                assert isinstance(compared, Compared), "a slab was to be compared"
                slabs.append(compared)
            self._found += self._replay.finish(part, slabs)
            yield partial(self._leave, part, upcoming)

    def _compare(self, part: Pass, start: int, _rows: int) -> Compared:
        return self.pages.compare(part, start, self._conversation)

    def _leave(self, part: Pass, upcoming: Pass | None, _rows: int) -> None:
        self.pages.leave(part, upcoming)


def _borders(part: Pass) -> list[int]:
    """Return the positions at which a pass and its slabs begin."""
    first = (part.start // SLAB_TOKENS + 1) * SLAB_TOKENS
    return [part.start, *range(first, len(part.ids), SLAB_TOKENS)]
