"""The check of one recorded answer, token by token (spec/07-host §10). Pure.

The rules are those of the live run, not a copy: a Sampler chooses by the logits of the
recorded tokens before, and a Run is given the recorded tokens and makes the text, the end
and the GENERATION of them.

    AnswerCheck ─ receive(logits of the next token) … ─► finding
"""

from dataclasses import dataclass

from model_host.engine_api import Logits
from model_host.errors import GrammarFailed, LogitsInvalid
from model_host.generation import Run
from model_host.refusals import GenerationRefused, GrammarInvalid
from model_host.replay.passes import Span
from model_host.replay.rendering import RenderedCase
from model_host.replay.verdict import Conditions, verdict_on
from model_host.sampling import RECIPE_DIGEST, Sampler, sampler_for
from replica.conversation import (
    NO_ENTRY,
    NO_TOKEN,
    Cause,
    Finding,
    Outcome,
    extend_digest,
    start_digest,
)
from replica.errors import HostError
from replica.ids import Digest, EntryId
from replica.log import FinishReason, Generation, TokenLogprobs

_NO_DIGEST = Digest(bytes(32))
_ENDS_OF_FORMS = (FinishReason.STOP, FinishReason.TOOL_CALLS)
"""How an answer ends where its grammar is complete."""


@dataclass(frozen=True, slots=True)
class _Difference:
    cause: Cause
    detail: str
    token_index: int = NO_TOKEN
    entry: EntryId = NO_ENTRY


class Samplers:
    """The samplers of one replay: one per recipe, since each has working memory."""

    def __init__(self) -> None:
        """Start with the present recipe, which also gives log probabilities."""
        self.present = Sampler()
        self._known: dict[Digest, Sampler | None] = {RECIPE_DIGEST: self.present}

    def of(self, recipe: Digest | None) -> Sampler | None:
        """Return the sampler that executes a recipe; None if it is unknown here."""
        if recipe is None:
            return None
        if recipe not in self._known:
            self._known[recipe] = sampler_for(recipe)
        return self._known[recipe]


class AnswerCheck:
    """One answer: what its log entry states, against what this host computes.

    Without `run_with` its context alone is computed, and no token is judged.
    """

    def __init__(self, rendered: RenderedCase, here: Conditions, samplers: Samplers) -> None:
        """Judge what can be judged without computing."""
        self.case = rendered.case
        self.context = rendered.context
        self._here = here
        self._samplers = samplers
        self._run: Run | None = None
        self._has_grammar = False
        self._is_form_lost = False
        """Whether the state of its grammar is unknown: nothing says where the form ends."""
        self._is_cut = False
        """Whether a token that is in no vocabulary here was left unjudged."""
        self._sampler: Sampler | None = None
        self._done = self._checked = self._differing = self._cached_tokens = 0
        self._logprobs: list[float] = []
        self._difference: _Difference | None = None
        self.tokens = _known_tokens(self.case.recorded, here.vocabulary)
        """The number of tokens whose logits can be computed, up to the first foreign one."""
        if self.case.recorded is None:
            self._note(Cause.PART_MISSING, "its body is missing here")
        elif rendered.problem is not None:
            found = rendered.problem
            self._difference = _Difference(found.cause, found.detail, entry=found.entry)
        elif len(self.context.ids) + self.tokens > here.context_tokens:
            self._note(Cause.REQUEST, f"a context here has at most {here.context_tokens} tokens")
        self.has_context = self._difference is None
        """Whether the context here is the one that the model saw, and can be computed."""

    @property
    def recorded(self) -> Generation:
        """The answer as the log has it; only where its body is here."""
        assert self.case.recorded is not None, "the body is here"
        return self.case.recorded

    def run_with(self, run: Run) -> None:
        """Let the tokens be judged: by the run of the answer, without tokens."""
        self._run = run
        self._has_grammar = run.grammar is not None
        if self.case.request.profile not in (None, self.case.seal.profile):
            self._note(Cause.REQUEST, "its seal states another profile than the request names")
        if self._has_grammar and self.recorded.grammar_engine != self._here.grammar_engine:
            run.grammar, self._is_form_lost = None, True
        if self._hard is Cause.NONE:
            self._sampler = self._samplers.of(self.recorded.sampler_digest)

    def refuse(self, error: HostError) -> None:
        """Note that this host can't repeat the run of this answer.

        A rule that refuses its request holds at every host. A limit, or a failure, is of this
        host and this moment: others may execute its recipe (HOST-36).
        """
        is_costly = isinstance(error, GrammarInvalid) and error.is_costly
        is_rule = isinstance(error, GenerationRefused) and not is_costly
        cause = Cause.REQUEST if is_rule else Cause.SAMPLING_UNKNOWN
        self._note(cause, f"{error.reason}: {error.detail}")

    # --- what is to be computed -----------------------------------------------------------

    @property
    def span(self) -> Span:
        """The context with the answer, but for the last token; the rows of logits it needs."""
        ids = (*self.context.ids, *self.recorded.token_ids[: max(self.tokens - 1, 0)])
        return Span(ids, len(self.context.ids) - 1 if self._is_judged else len(ids))

    @property
    def _is_judged(self) -> bool:
        return self._run is not None and bool(self.recorded.token_ids)

    @property
    def is_complete(self) -> bool:
        """Whether all logits that it needs have come."""
        return not self._is_judged or self._done >= self.tokens

    # --- tokens -------------------------------------------------------------------------

    def receive(self, index: int, logits: Logits) -> None:
        """Check the token at an output index by its logits [V]; indices come in order."""
        assert self._run is not None and index == self._done, "tokens come in order"
        self._done += 1
        recorded, is_known = self.recorded, self.recorded.token_ids[index] < self._here.vocabulary
        token_id = recorded.token_ids[index]
        if self._run.finished is not None:
            self._note(Cause.ENDING, f"it goes on behind its end: {self._run.finished[1]}", index)
            return
        stated = recorded.logprobs[index] if index < len(recorded.logprobs) else None
        if self._sampler is not None:
            self._judge(self._sampler, index, logits, stated)
        elif is_known:
            self._logprobs.append(self._samplers.present.logprob(logits, token_id))
        if is_known:
            self._add(self._run, index, stated)
        else:
            self._is_cut = True

    def _add(self, run: Run, index: int, stated: TokenLogprobs | None) -> None:
        """Add a recorded token to the run, also one that its grammar does not allow."""
        token_id = self.recorded.token_ids[index]
        try:
            run.add_token(token_id, stated)
        except GrammarFailed as error:
            if self._hard is Cause.NONE:  # else HOST-75 allows no verdict on a token
                words = f"token {token_id} at {index} has not the form asked for: {error.detail}"
                self._note(Cause.TOKEN, words, index)
            run.grammar, self._is_form_lost = None, True  # no state of it follows from here on
            run.add_token(token_id, stated)

    def _judge(
        self, sampler: Sampler, index: int, logits: Logits, stated: TokenLogprobs | None
    ) -> None:
        assert self._run is not None, "a run is replayed"
        self._checked += 1
        token_id = self.recorded.token_ids[index]
        try:
            choice = sampler.choose(logits, self._run.sampler_state, self._run.mask())
        except (GrammarFailed, LogitsInvalid) as error:
            self._differing += 1
            self._note(Cause.TOKEN, f"token {token_id} at {index}: {error.detail}", index)
            return
        if choice.token_id != token_id:
            self._differing += 1
            words = f"token {token_id} at {index}, where the request yields {choice.token_id}"
            self._note(Cause.TOKEN, words, index)
        elif choice.logprobs != stated:
            self._note(Cause.LOGPROBS, f"log probabilities at {index} are others", index)

    def compared_cache(self, tokens: int, *, is_equal: bool) -> None:
        """Note that so many cached tokens of the context were compared."""
        self._cached_tokens += tokens
        if not is_equal:
            self._note(Cause.CACHE, "cached keys and values differ from those computed now")

    # --- the end --------------------------------------------------------------------------

    def finding(self) -> Finding:
        """Return the finding, once; all logits that it needs have come.

        The run, whose counts and grammar take memory, is dropped.
        """
        assert not self.has_context or self.is_complete, "all logits have come"
        if self._run is not None and self._difference is None:
            self._compare_rest(self._run)
        outcome, cause = self._verdict()
        self._run = None
        known = self._difference or _Difference(cause, "")
        recorded = self.case.recorded
        return Finding(
            answer=self.case.entry,
            seal=self.case.seal_id,
            render_digest=self.context.digest,
            outcome=outcome,
            cause=cause,
            token_index=known.token_index,
            entry=known.entry,
            detail=known.detail,
            prompt_tokens=len(self.context.ids),
            output_tokens=len(recorded.token_ids) if recorded is not None else 0,
            checked_tokens=self._checked,
            differing_tokens=self._differing,
            logprobs=tuple(self._logprobs),
            cached_tokens=self._cached_tokens,
        )

    def _compare_rest(self, run: Run) -> None:
        """Compare end, text, usage and drafts with those of the run."""
        recorded = self.recorded
        if not self._is_cut:
            self._end(run)
            if self._difference is not None:
                return
            self._compare_text(run)
        if recorded.grammar_engine and not self._has_grammar:
            self._note(Cause.REQUEST, "it states a grammar engine, and its request has no grammar")
        self._compare_usage()
        stream = start_digest(self.case.request_id, recorded.run)
        if recorded.draft_digest != extend_digest(stream, recorded.token_ids):
            self._note(Cause.DRAFTS, "its draft digest is not that of its tokens")

    def _compare_text(self, run: Run) -> None:
        """Compare text and grammar with those of a run that has ended."""
        recorded = self.recorded
        made = run.generation(recorded.usage, _NO_DIGEST, profile=None, numerics_class=_NO_DIGEST)
        shown = recorded.parts, recorded.visible_bytes
        # A host that closes a run of another profile may lack its tokenizer: it shows nothing.
        is_closed_blindly = _states_no_recipe(recorded) and shown == ((), 0)
        if shown != (made.parts, made.visible_bytes) and not is_closed_blindly:
            self._note(Cause.TEXT, "its text is not that of its tokens")
        if self._hard is Cause.NONE and made.grammar_digest != recorded.grammar_digest:
            self._note(Cause.REQUEST, "it states another grammar than the request has")

    def _end(self, run: Run) -> None:
        """End the run as the log states it, if a rule or an event justifies that."""
        stated, recorded, last = self.recorded.finish_reason, self.recorded, self._done - 1
        # HOST-77: "INTERRUPTED always", also behind an end that the host did not live to state.
        # A form whose state is unknown may have ended it, also where a limit does.
        is_free = stated == FinishReason.INTERRUPTED or (
            self._is_form_lost and stated in _ENDS_OF_FORMS
        )
        if run.finished is not None:
            if run.finished[0] != stated and not is_free:
                words = f"it ends with {run.finished[0].name}: {run.finished[1]}"
                self._note(Cause.ENDING, words, last)
        elif is_free or (stated == FinishReason.CANCELLED and self.case.is_cancelled):
            run.end(FinishReason(stated), recorded.finish_detail)
        else:
            self._note(Cause.ENDING, "no rule ends it here", last)

    def _compare_usage(self) -> None:
        usage, prompt = self.recorded.usage, len(self.context.ids)
        parts = usage.cached_tokens + usage.restored_tokens + usage.prefilled_tokens
        # All are 0 where the prefill was cut short (spec/07-host §5).
        if usage.prompt_tokens not in (0, prompt):
            self._note(Cause.USAGE, f"it states {usage.prompt_tokens} prompt tokens, not {prompt}")
        if parts != usage.prompt_tokens:
            words = f"{parts} cached, restored and prefilled tokens of {usage.prompt_tokens}"
            self._note(Cause.USAGE, f"it states {words}")
        if usage.output_tokens != len(self.recorded.token_ids):
            self._note(Cause.USAGE, f"it states {usage.output_tokens} output tokens")

    # --- the verdict ----------------------------------------------------------------------

    @property
    def _hard(self) -> Cause:
        """The reason why its tokens can't be judged here; NONE if they can."""
        if self.recorded.numerics_class != self._here.numerics_class:
            return Cause.OTHER_NUMERICS
        if self._samplers.of(self.recorded.sampler_digest) is None:
            return Cause.SAMPLING_UNKNOWN
        if self._has_grammar and self.recorded.grammar_engine != self._here.grammar_engine:
            return Cause.SAMPLING_UNKNOWN
        return Cause.NONE

    def _verdict(self) -> tuple[Outcome, Cause]:
        if self._difference is not None:
            return verdict_on(self._difference.cause, self.case.seal.profile, self._here)
        if self._run is None:
            return Outcome.ACCEPTED, Cause.NONE
        hard = self._hard if self._is_judged else Cause.NONE
        if self.recorded.render_recipe_digest != self._here.render_recipe_digest:
            hard = Cause.OTHER_TEMPLATE
        if hard is Cause.NONE:
            return Outcome.ACCEPTED, hard
        # HOST-77: nobody can say by which recipe its tokens were chosen, and there may be none.
        was_closed = self.recorded.finish_reason == FinishReason.INTERRUPTED
        if was_closed and _states_no_recipe(self.recorded):
            if not self.recorded.token_ids:
                return Outcome.ACCEPTED, Cause.NONE
            hard = Cause.SAMPLING_UNKNOWN
        return Outcome.UNDECIDED, hard

    def _note(self, cause: Cause, detail: str, token_index: int = NO_TOKEN) -> None:
        """Note a difference; the first one counts."""
        if self._difference is None:
            self._difference = _Difference(cause, detail, token_index)


def _known_tokens(answer: Generation | None, vocabulary: int) -> int:
    """Return how many first tokens have logits here: up to one that is not in the vocabulary."""
    ids = answer.token_ids if answer is not None else ()
    known = next((n for n, token_id in enumerate(ids) if token_id >= vocabulary), len(ids))
    return min(known + 1, len(ids))


def _states_no_recipe(answer: Generation) -> bool:
    """Say whether it was closed by a host that did not have its profile (HOST-35)."""
    return (answer.sampler_digest, answer.render_recipe_digest) == (None, None)
