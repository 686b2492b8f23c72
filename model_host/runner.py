"""One generation: request → seal → drafts → generation (spec/07-host §4).

Pure: no clock, disk, network or tensor. `plan` turns a request whose turn has
come (model_host/schedule.py) into a Plan or a refusal. A Run then collects tokens
until it has finished.

    plan ─► Run: the seal is appended, the prompt prefilled
              a sampler chooses by sampler_state ─► add_token … ─► finished
              end ─► finished early
                └─► generation
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Protocol

from model_host import render as rendering
from model_host.profile import Profile
from model_host.refusals import (
    BodyUnavailable,
    ContextTooLong,
    ObligationsOpen,
    ProfileUnknown,
    SealTooLarge,
    TokensForeign,
)
from model_host.render import ContextItem, Encoder, Rendered, Template
from model_host.sampler_state import SamplerState
from replica.conversation import (
    Conversation,
    Sealable,
)
from replica.ids import SALT_BYTES, ConversationId, Digest, EntryId, short
from replica.limits import BODY_BYTES_MAX, SEAL_ENTRIES_MAX
from replica.log import (
    FinishReason,
    Generation,
    Message,
    Part,
    Request,
    Seal,
    Text,
    TokenLogprobs,
    ToolCall,
    ToolResult,
    Usage,
    codec,
)
from replica.order import SealNode

_ID_BYTES_MAX = 5
"""Most bytes of a token id as a varint."""
_OTHER_BYTES_MAX = 4096
"""Most bytes of a generation's body without its ids and text, plus one more token's text."""


def _logprobs_bytes_max(count: int) -> int:
    """Return the most bytes of one token's log probabilities in a generation's body."""
    framing = 14  # the keys and lengths of a message and its lists, and the token's own
    return framing + count * (_ID_BYTES_MAX + 4) if count else 0


class Visible(Protocol):
    """The conversion of tokens to visible bytes; bytes that may yet change are held back."""

    def push(self, token_id: int) -> bytes:
        """Add a token; return the bytes that may be shown now."""

    def finish(self) -> bytes:
        """Return the bytes held back, which are plain text after all."""

    @property
    def stopped_by(self) -> str | None:
        """Return the stop string met, if any."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A request that can be answered: its seal, and the tokens behind it."""

    conversation: ConversationId
    request_id: EntryId
    request: Request
    seal: Seal
    prompt: tuple[int, ...]
    output_tokens_max: int
    draw_offset: int
    """Output tokens of the same assistant turn before this request."""

    @property
    def continued(self) -> tuple[int, ...]:
        """The tokens of the turn that this request continues; none if it opens one."""
        return self.prompt[len(self.prompt) - self.draw_offset :]


def context_items(
    held: Conversation, parent: SealNode | None, entries: Sequence[EntryId]
) -> list[ContextItem]:
    """Return the context that a new seal of `entries` on `parent` would have.

    Raises BodyUnavailable for a missing body.
    """
    lists = [node.seal.entries for node in parent.chain()] if parent is not None else []
    items = []
    for listed in (*lists, tuple(entries)):
        for entry_id in listed:
            body = held.log.body(entry_id)
            if body is None and not held.log.is_malformed(entry_id):
                raise BodyUnavailable(missing=(entry_id,))
            parents = held.log.entries[entry_id].header.parents
            items.append(ContextItem(entry_id, body, entry_id == listed[-1], parents))
    return items


def check_obligations(items: Sequence[ContextItem]) -> None:
    """Raise ObligationsOpen if a tool call of the context has no result."""
    open_calls: dict[str, None] = {}
    for item in items:
        parts: tuple[Part, ...] = ()
        if isinstance(item.body, (Message, Generation)):
            parts = item.body.parts
        for part in parts:
            if isinstance(part, ToolCall):
                open_calls[part.call_id] = None
            elif isinstance(part, ToolResult):
                open_calls.pop(part.call_id, None)
    if open_calls:
        raise ObligationsOpen(f"open tool calls: {', '.join(open_calls)}")


def plan(
    held: Conversation,
    ready: Sealable,
    *,
    profile: Profile,
    template: Template,
    encoder: Encoder,
) -> Plan:
    """Check a request whose turn has come, render its context and build its seal.

    Raises a GenerationRefused, which the host logs as a refused generation.
    """
    request = held.order.request(ready.request)
    if request is None:
        raise BodyUnavailable(missing=(ready.request,))
    if request.profile not in (None, profile.digest):
        raise ProfileUnknown
    if len(ready.entries) > SEAL_ENTRIES_MAX:
        raise SealTooLarge(f"{len(ready.entries)} entries, at most {SEAL_ENTRIES_MAX}")
    items = context_items(held, ready.parent, ready.entries)
    check_obligations(items)
    rendered = rendering.render(items, template, encoder)
    digests = rendering.render_digests(rendered, template, encoder)
    _check_answers(held, ready.parent, items, digests, template, encoder)
    prompt = tuple(rendered.token_ids)
    remaining = profile.context_tokens_max - len(prompt)
    if remaining < 1:
        raise ContextTooLong(
            f"the context has {len(prompt)} tokens, the model holds {profile.context_tokens_max}"
        )
    wanted = request.output_tokens_max or remaining
    return Plan(
        held.id,
        ready.request,
        request,
        _seal(ready, rendered, profile, digests[-1]),
        prompt,
        min(wanted, remaining),
        rendered.continued_tokens,
    )


def _check_answers(
    held: Conversation,
    parent: SealNode | None,
    items: Sequence[ContextItem],
    digests: Sequence[Digest],
    template: Template,
    encoder: Encoder,
) -> None:
    """Raise TokensForeign for an answer whose context was rendered differently from here.

    Ids within the vocabulary may still be those of another model. `digests` has one
    digest for each prefix of the context.
    """
    chain = parent.chain() if parent is not None else []
    counts = accumulate(len(node.seal.entries) for node in chain)
    here = {node.id: digests[count] for node, count in zip(chain, counts, strict=True)}
    for item in items:
        if not isinstance(item.body, Generation) or not item.body.token_ids:
            continue
        node = held.order.nodes[held.log.entries[item.entry].header.parents[0]]
        if here.get(node.id) == node.seal.render_digest:
            continue
        # The answer comes from another branch, or the template rewrites history.
        own = rendering.render(
            context_items(held, node.parent, node.seal.entries), template, encoder
        )
        if rendering.render_digests(own, template, encoder)[-1] != node.seal.render_digest:
            raise TokensForeign(f"the answer {short(item.entry)} was rendered differently")


def _seal(ready: Sealable, rendered: Rendered, profile: Profile, render_digest: Digest) -> Seal:
    """Build the seal. Raises SealTooLarge."""
    new = rendered.tokens[-len(ready.entries) :]
    listed = set(ready.entries)
    seal = Seal(
        request=ready.request,
        prev_seal=ready.parent.id if ready.parent is not None else None,
        entries=ready.entries,
        profile=profile.digest,
        context_digest=ready.context_digest,
        render_digest=render_digest,
        tokens_per_entry=tuple(len(ids) for _, ids in new),
        membership_heads=ready.membership_heads,
        projections=tuple(p for p in rendered.projections if p.entry in listed),
    )
    size = SALT_BYTES + len(codec.encode_body(seal))
    if size > BODY_BYTES_MAX:
        raise SealTooLarge(f"a seal of {size} bytes, at most {BODY_BYTES_MAX}")
    return seal


@dataclass(slots=True)
class Run:
    """One run of one plan: the tokens so far and their visible bytes."""

    plan: Plan
    seal_id: EntryId
    run: int
    sampler_state: SamplerState
    text: Visible
    context_tokens_max: int
    token_ids: list[int] = field(default_factory=list)
    visible: bytearray = field(default_factory=bytearray)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finished: tuple[FinishReason, str] | None = None

    def add_token(self, token_id: int, logprobs: TokenLogprobs | None = None) -> bytes:
        """Add a token, chosen now or read from the journal; return the bytes it makes visible.

        It has log probabilities if the request asks for them. It may finish the run.
        """
        self.token_ids.append(token_id)
        if logprobs is not None:
            self.logprobs.append(logprobs)
        self.sampler_state.add(token_id)
        ends = token_id in self.sampler_state.end_ids
        shown = b"" if ends else self.text.push(token_id)
        self.finished = self._finish_after(token_id, len(shown))
        if self.finished is not None and self.text.stopped_by is None:
            shown += self.text.finish()
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
        if len(self.plan.prompt) + len(self.token_ids) >= self.context_tokens_max:
            return FinishReason.CONTEXT_LIMIT, "the context is full"
        if len(self.token_ids) >= self.plan.output_tokens_max:
            return FinishReason.LENGTH, "output_tokens_max"
        per_token = _ID_BYTES_MAX + _logprobs_bytes_max(self.plan.request.logprobs)
        size = len(self.token_ids) * per_token + len(self.visible) + shown_bytes
        if size + _OTHER_BYTES_MAX > BODY_BYTES_MAX:
            return FinishReason.LENGTH, "no entry holds more"
        return None

    def end(self, finish: FinishReason, detail: str) -> None:
        """End the run early.

        Bytes held back for a stop string become visible, in the generation alone: the
        drafts of a continuation begin after them.
        """
        assert self.finished is None, "a run finishes once"
        self.visible += self.text.finish()
        self.finished = (finish, detail)

    def generation(
        self,
        usage: Usage,
        draft_digest: Digest,
        *,
        profile: Profile | None,
        numerics_class: Digest,
    ) -> Generation:
        """Return the generation of a finished run, whose drafts have this digest.

        `profile` is None if it ran under another.
        """
        assert self.finished is not None, "a generation is written when the run has finished"
        finish, detail = self.finished
        text = bytes(self.visible).decode()
        return Generation(
            token_ids=tuple(self.token_ids),
            parts=(Text(text),) if text else (),
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
        )
