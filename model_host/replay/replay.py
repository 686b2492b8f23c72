"""One part of a replay: its passes, and the findings as they come (spec/07-host §10).

Pure. The caller computes the passes chunk by chunk.

    collect ─── parts_of ───► Replay ─ start ─► findings without computing
                              passes ─ receive ─► findings of answers whose tokens are checked
                                       finish ─► findings of contexts that alone are computed
"""

from collections.abc import Callable, Iterable, Iterator

from model_host.generation import Run
from model_host.replay.check import AnswerCheck, Samplers
from model_host.replay.pages import Compared, Computed
from model_host.replay.passes import Pass, passes_of
from model_host.replay.rendering import RenderedCase
from model_host.replay.verdict import Conditions
from replica.conversation import Finding, ReplayMode
from replica.errors import HostError

MakeRun = Callable[[RenderedCase], Run]
"""Returns the run of an answer, without tokens. Raises a refusal."""


class Replay:
    """The state of one part of a replay, apart from the pages it computes in."""

    def __init__(
        self,
        mode: ReplayMode,
        rendered: Iterable[RenderedCase],
        here: Conditions,
        make_run: MakeRun,
    ) -> None:
        """Prepare the checks of answers that one profile judges."""
        samplers = Samplers()
        self._decided: list[AnswerCheck] = []
        self._checks: list[AnswerCheck] = []
        for one in rendered:
            check = AnswerCheck(one, here, samplers)
            if check.has_context and mode is ReplayMode.VERIFY:
                _add_run(check, one, make_run)
            (self._checks if check.has_context else self._decided).append(check)
        self.is_rebuild = mode is ReplayMode.REBUILD
        computed = [c for c in self._checks if self.is_rebuild or not c.is_complete]
        self._decided += [c for c in self._checks if c not in computed]
        self._checks = computed
        self.passes = passes_of([check.span for check in computed])
        self._differs_at: int | None = None
        """The first position of the last pass that differs from what is cached."""

    @property
    def tokens(self) -> int:
        """The number of tokens to compute."""
        return sum(len(part.ids) - part.start for part in self.passes)

    def start(self) -> Iterator[Finding]:
        """Yield the findings of answers for which nothing is computed."""
        for check in self._decided:
            yield check.finding()

    def receive(self, part: Pass, computed: Computed) -> list[Finding]:
        """Check the tokens whose logits a chunk has; return the findings of complete answers."""
        complete = []
        for row, logits in zip(computed.rows, computed.logits, strict=True):
            for use in part.wanted[row]:
                check = self._checks[use.span]
                check.receive(use.index, logits)
                if check.is_complete:
                    complete.append(check.finding())
        return complete

    def finish(self, part: Pass, compared: Iterable[Compared]) -> list[Finding]:
        """Return the findings of the contexts that end in a pass, where they alone are computed.

        `compared` are the slabs of the pass, compared with what is cached.
        """
        if not self.is_rebuild:
            return []
        slabs, found = list(compared), []
        # The positions before its start are those of the pass before it, compared there.
        known = [self._differs_at, *(slab.differs_at for slab in slabs)]
        if self._differs_at is not None and self._differs_at >= part.start:
            del known[0]
        self._differs_at = next((at for at in known if at is not None), None)
        for number in part.spans:
            check = self._checks[number]
            end = len(check.span.ids)
            tokens = sum(max(min(slab.tokens, end - slab.start), 0) for slab in slabs)
            is_equal = self._differs_at is None or self._differs_at >= end
            check.compared_cache(tokens, is_equal=is_equal)
            found.append(check.finding())
        return found


def _add_run(check: AnswerCheck, rendered: RenderedCase, make_run: MakeRun) -> None:
    try:
        check.run_with(make_run(rendered))
    except HostError as error:
        check.refuse(error)
