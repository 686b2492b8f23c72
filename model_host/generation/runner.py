"""One generation: request → seal → drafts → generation (spec/07-host §4).

Pure: no clock, disk, network or tensor. A request whose turn has come has a Plan
(model_host/generation/planning.py). A Run collects tokens until it has finished.

    Plan ─► Run: the seal is appended, the prompt prefilled
              a sampler chooses by sampler_state ─► add_token … ─► finished
              end ─► finished early
                └─► generation
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from model_host.generation.calls import Visible
from model_host.generation.planning import Plan
from model_host.grammar import Grammar
from model_host.profiles import Profile
from model_host.sampling import Mask, SamplerState
from replica.ids import Digest, EntryId
from replica.limits import BODY_BYTES_MAX, BODY_FIELDS_MAX
from replica.log import (
    CONTINUABLE,
    FinishReason,
    Generation,
    Text,
    TokenLogprobs,
    ToolCall,
    Usage,
)

CALL_ID_DIGITS = 24

_ID_BYTES_MAX = 5
"""Most bytes of a token id as a varint."""
_OTHER_BYTES_MAX = 4096
"""Most bytes of a generation's body without its ids and text, plus one more token's text."""


_LOGPROBS_FIELDS, _OTHER_FIELDS_MAX = 4, 2048
"""Fields of one token's log probabilities with their message, and most of all others: the parts,
the most of which are calls."""


def _logprobs_bytes_max(count: int) -> int:
    """Return the most bytes of one token's log probabilities in a generation's body."""
    framing = 14  # the keys and lengths of a message and its lists, and the token's own
    return framing + count * (_ID_BYTES_MAX + 4) if count else 0


@dataclass(slots=True)
class Run:
    """One run of one plan: the tokens so far and their visible bytes."""

    plan: Plan
    seal_id: EntryId
    run: int
    sampler_state: SamplerState
    text: Visible
    context_tokens_max: int
    grammar: Grammar | None = None
    token_ids: list[int] = field(default_factory=list)
    visible: bytearray = field(default_factory=bytearray)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finished: tuple[FinishReason, str] | None = None

    @property
    def tokens_left(self) -> int:
        """The most tokens that it may still get."""
        limit = min(self.plan.output_tokens_max, self.context_tokens_max - len(self.plan.prompt))
        return limit - len(self.token_ids)

    def mask(self) -> Mask | None:
        """Return the ids that the grammar allows next; None without one. Raises GrammarFailed."""
        return self.grammar.mask() if self.grammar is not None else None

    def add_token(self, token_id: int, logprobs: TokenLogprobs | None = None) -> bytes:
        """Add a token, chosen now or read from the journal; return the bytes it makes visible.

        It has log probabilities if the request asks for them. It may finish the run. Raises
        GrammarFailed for a token that the grammar does not allow.
        """
        if self.grammar is not None and token_id not in self.sampler_state.end_ids:
            self.grammar.advance(token_id)
        self.token_ids.append(token_id)
        if logprobs is not None:
            self.logprobs.append(logprobs)
        self.sampler_state.add(token_id)
        ends = token_id in self.sampler_state.end_ids
        shown = b"" if ends else self.text.push(token_id)
        self.finished = self._finish_after(token_id, len(shown))
        if self.finished is not None:
            shown += self._finish_text()
        self.visible += shown
        return shown

    def _finish_after(self, token_id: int, shown_bytes: int) -> tuple[FinishReason, str] | None:
        if token_id in self.plan.request.stop_tokens:
            return FinishReason.STOP, f"stop token {token_id}"
        if token_id in self.sampler_state.end_ids:
            return FinishReason.STOP, "end of turn"
        # Before the limits: an answer cut off by a limit can be continued, one that stopped can't.
        if self.text.stopped_by is not None:
            return FinishReason.STOP, f"stop string {self.text.stopped_by!r}"
        if self.grammar is not None and self.grammar.is_over:
            return FinishReason.STOP, "the form is complete"
        if len(self.plan.prompt) + len(self.token_ids) >= self.context_tokens_max:
            return FinishReason.CONTEXT_LIMIT, "the context is full"
        if len(self.token_ids) >= self.plan.output_tokens_max:
            return FinishReason.LENGTH, "output_tokens_max"
        per_token = _ID_BYTES_MAX + _logprobs_bytes_max(self.plan.request.logprobs)
        text = len(self.visible) + shown_bytes + self.text.hidden_bytes
        size = len(self.token_ids) * per_token + text + _OTHER_BYTES_MAX
        fields = _LOGPROBS_FIELDS * len(self.logprobs) + _OTHER_FIELDS_MAX
        if size > BODY_BYTES_MAX or fields > BODY_FIELDS_MAX:
            return FinishReason.LENGTH, "no entry holds more"
        return None

    def _finish_text(self) -> bytes:
        """End the text of a finished run; an answer that ended with calls has its own reason."""
        assert self.finished is not None, "the reason decides about a call that does not end"
        finish, detail = self.finished
        shown = self.text.finish(can_continue=finish in CONTINUABLE)
        if self.text.calls and finish is FinishReason.STOP:
            self.finished = (FinishReason.TOOL_CALLS, detail)
        return shown

    def end(self, finish: FinishReason, detail: str) -> None:
        """End the run early.

        Bytes held back for a stop string become visible, in the generation alone: the
        drafts of a continuation begin after them.
        """
        assert self.finished is None, "a run finishes once"
        self.finished = (finish, detail)
        self.visible += self._finish_text()

    def generation(
        self,
        usage: Usage,
        draft_digest: Digest,
        *,
        profile: Profile | None,
        numerics_class: Digest | None,
    ) -> Generation:
        """Return the generation of a finished run, whose drafts have this digest.

        `profile` is None if it ran under another, `numerics_class` if nothing was computed.
        """
        assert self.finished is not None, "a generation is written when the run has finished"
        finish, detail = self.finished
        grammar = self.plan.grammar  # a run that is only shown has the source alone
        return Generation(
            token_ids=tuple(self.token_ids),
            parts=tuple(self._parts()),
            visible_bytes=len(self.visible),
            finish_reason=finish,
            finish_detail=detail,
            usage=replace(usage, output_tokens=len(self.token_ids)),
            sampler_digest=profile.sampler_digest if profile else None,
            render_recipe_digest=profile.render_recipe_digest if profile else None,
            draft_digest=draft_digest,
            numerics_class=numerics_class,
            run=self.run,
            logprobs=tuple(self.logprobs),
            grammar_engine=profile.grammar_engine if profile and grammar else "",
            grammar_digest=grammar.digest if grammar is not None else None,
        )

    def _parts(self) -> Iterator[Text | ToolCall]:
        """Yield the visible text, with each call at its place."""
        shown = 0
        for number, call in enumerate(self.text.calls):
            if call.offset > shown:
                yield Text(self.visible[shown : call.offset].decode())
            # The request's id makes it unique in the conversation, and the same after a crash.
            call_id = f"{self.plan.request_id.hex()[:CALL_ID_DIGITS]}-{number}"
            yield ToolCall(call_id, call.name, call.arguments_json)
            shown = call.offset
        if len(self.visible) > shown:
            yield Text(self.visible[shown:].decode())
