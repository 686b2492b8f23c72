"""A plan that can be carried out, with the text, sampling and grammar of its run."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from model_host.generation import CallingText, Plan, Run, Visible, VisibleText, unfinished
from model_host.grammar import Grammar, Grammars, SharedGrammars, may_call
from model_host.io.profiles import Offer
from model_host.rendering import TurnBytes
from model_host.sampling import SamplerState
from replica.ids import EntryId


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan that can be carried out: all checks that may refuse it are behind it."""

    offer: Offer
    plan: Plan
    state: SamplerState
    text: Visible
    grammar: Grammar | None

    def run(self, seal_id: EntryId, number: int) -> Run:
        """Return the run of this plan, once its seal is in the log."""
        limit = self.offer.profile.context_tokens_max
        return Run(self.plan, seal_id, number, self.state, self.text, limit, self.grammar)


def prepared_run(
    planned: Plan, offer: Offer, grammars: Grammars | SharedGrammars | None = None
) -> Prepared:
    """Return a plan with the sampling, text and grammar of its run; any thread may call this.

    Its grammar is one of `grammars`, if they are given, which are of the same offer.
    Its grammar has passed `RequestHandler.check_grammar`. Raises GenerationRefused.
    """
    source = planned.grammar
    shows = text_of(planned, planned.request.stop, offer)
    state = SamplerState(
        planned.request,
        vocabulary=offer.tokenizer.token_count,
        context=planned.prompt,
        output_index=planned.draw_offset,
        end_ids=offer.stop_ids,
    )
    compiled = grammars or offer.grammars
    grammar = compiled.compile(source, planned.continued) if source is not None else None
    return Prepared(offer, planned, state, shows, grammar)


def text_of(planned: Plan, stops: Sequence[str], offer: Offer) -> Visible:
    """Return the visible text of a run. Raises StopInvalid."""
    tokenizer, renderer = offer.tokenizer, offer.renderer
    first_stop = planned.request.output_tokens_min
    text = VisibleText(tokenizer, stops, planned.continued, first_stop)
    if not may_call(planned.request, planned.context.place.tools or ()):
        return text
    continued = TurnBytes(tokenizer, planned.continued).begun
    before = continued[: len(continued) - len(unfinished(continued))].decode(errors="replace")
    return CallingText(text, renderer.turns.format, before)


def new_run_number() -> int:
    """Return a fresh run number; 0 would be none."""
    return int.from_bytes(os.urandom(8), "little") or 1


class NoText:
    """The visible text of tokens that have none here: none."""

    stopped_by = None
    calls = ()
    hidden_bytes = 0

    def push(self, _token_id: int) -> bytes:
        """Return no bytes."""
        return b""

    def finish(self, *, can_continue: bool) -> bytes:  # noqa: ARG002
        """Return no bytes."""
        return b""
