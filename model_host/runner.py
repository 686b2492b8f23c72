"""One generation: request → seal → drafts → generation (spec/07-host §4).

Pure: no clock, disk, network or tensor. A request whose turn has come has a Plan
(model_host/plan.py). A Run chooses tokens until it has finished.

    Plan ─► Run: the seal is appended, the prompt prefilled
              choose ─► journal ─► add_token ─► drafts, next step … ─► finished
              end ─► finished early
                └─► generation
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from model_host.calls import Visible
from model_host.engine_api import Logits
from model_host.plan import Plan
from model_host.profile import Profile
from replica.conversation import Draft, Progress, extend_digest, start_digest
from replica.ids import Digest, EntryId
from replica.log import CONTINUABLE, FinishReason, Generation, Text, ToolCall, Usage

CALL_ID_DIGITS = 24

Sampler = Callable[[Logits, Sequence[int], int], int]
"""Chooses a token from (logits [V], all tokens before, output index), deterministically."""


@dataclass(slots=True)
class Run:
    """One run of one plan: the tokens so far and their visible bytes."""

    plan: Plan
    seal_id: EntryId
    run: int
    sampler: Sampler
    text: Visible
    stop_ids: frozenset[int]
    context_tokens_max: int
    token_ids: list[int] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    visible: bytearray = field(default_factory=bytearray)
    finished: tuple[FinishReason, str] | None = None

    def choose(self, logits: Logits) -> int:
        """Choose the next token from the logits after the last one."""
        context = (*self.plan.prompt, *self.token_ids)
        return self.sampler(logits, context, self.plan.draw_offset + len(self.token_ids))

    def add_token(self, token_id: int) -> None:
        """Add a token, chosen now or read from the journal; it may finish the run."""
        self.token_ids.append(token_id)
        shown = b"" if token_id in self.stop_ids else self.text.push(token_id)
        self.finished = self._finish_after(token_id)
        if self.finished is not None:
            shown += self._finish_text()
        self._draft(token_id, shown)

    def _finish_after(self, token_id: int) -> tuple[FinishReason, str] | None:
        if token_id in self.stop_ids:
            return FinishReason.STOP, "end of turn"
        # Before the limits: an answer cut off by a limit can be continued, one that stopped can't.
        if self.text.stopped_by is not None:
            return FinishReason.STOP, f"stop string {self.text.stopped_by!r}"
        if len(self.plan.prompt) + len(self.token_ids) >= self.context_tokens_max:
            return FinishReason.CONTEXT_LIMIT, "the context is full"
        if len(self.token_ids) >= self.plan.output_tokens_max:
            return FinishReason.LENGTH, "output_tokens_max"
        return None

    def _finish_text(self) -> bytes:
        """End the text of a finished run; an answer that ended with calls has its own reason."""
        assert self.finished is not None, "the reason decides about a call that does not end"
        finish, detail = self.finished
        shown = self.text.finish(can_continue=finish in CONTINUABLE)
        if self.text.calls and finish is FinishReason.STOP:
            self.finished = (FinishReason.TOOL_CALLS, detail)
        return shown

    def _draft(self, token_id: int, data: bytes) -> None:
        # One frame per token: after a crash the frames have the same bounds.
        digest = extend_digest(self.digest, (token_id,))
        offset = len(self.token_ids) - 1
        frame = Draft(
            self.plan.conversation,
            self.plan.request_id,
            self.run,
            offset,
            (token_id,),
            len(self.visible),
            data,
            digest,
        )
        self.drafts.append(frame)
        self.visible += data

    @property
    def digest(self) -> Digest:
        """The running digest of the token stream."""
        if self.drafts:
            return self.drafts[-1].digest
        return start_digest(self.plan.request_id, self.run)

    def progress(self, usage: Usage, prefilled: int) -> Draft:
        """Return the frame with the progress of the prompt, for readers."""
        frame = Draft(
            self.plan.conversation, self.plan.request_id, self.run, 0, (), 0, b"", self.digest
        )
        return replace(
            frame,
            progress=Progress(
                len(self.plan.prompt), usage.cached_tokens, usage.restored_tokens, prefilled
            ),
        )

    def end(self, finish: FinishReason, detail: str) -> None:
        """End the run early.

        Bytes held back for a stop string become visible, in the generation alone: the
        drafts of a continuation begin after them.
        """
        assert self.finished is None, "a run finishes once"
        self.finished = (finish, detail)
        self.visible += self._finish_text()

    def generation(self, usage: Usage, *, profile: Profile, numerics_class: Digest) -> Generation:
        """Return the generation of a finished run."""
        assert self.finished is not None, "a generation is written when the run has finished"
        finish, detail = self.finished
        return Generation(
            token_ids=tuple(self.token_ids),
            parts=tuple(self._parts()),
            visible_bytes=len(self.visible),
            finish_reason=finish,
            finish_detail=detail,
            usage=replace(usage, output_tokens=len(self.token_ids)),
            sampler_digest=profile.sampler_digest,
            render_recipe_digest=profile.render_recipe_digest,
            draft_digest=self.digest,
            numerics_class=numerics_class,
            run=self.run,
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
