"""One generation's life: request → seal → drafts → generation (spec/07-host §4).

Pure: no clock, disk, network or tensor. `plan` turns a request whose turn has
come into a Plan or a refusal; a Run then eats logits and says what to do.

    plan ─► Run: the seal is appended, the prompt prefilled
              receive_logits ─► journal, draft, next step … ─► Finished
              cancel ─► Finished, with what there is
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from model_host import render as rendering
from model_host.profile import Profile
from model_host.refusals import (
    BodyUnavailable,
    ContextTooLong,
    ObligationsOpen,
    ProfileUnknown,
)
from model_host.render import ContextItem, Encoder, Rendered, Template
from replica.body import (
    FinishReason,
    Generation,
    Message,
    Part,
    Request,
    Seal,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from replica.conversation import Conversation
from replica.drafts import extend_digest, start_digest
from replica.effects import Draft, Progress
from replica.ids import ConversationId, Digest, EntryId
from replica.order import SealNode
from replica.sealing import Sealable

Logits = NDArray[np.float32]


Sampler = Callable[[Logits, Sequence[int], int], int]
"""Chooses from (logits [V], all tokens before, output index); the same for the same, always."""


class VisibleText(Protocol):
    """Turns tokens into visible bytes, holding back what may yet change."""

    def push(self, token_id: int) -> bytes:
        """Take a token; return bytes that may be shown now."""

    def finish(self) -> bytes:
        """Return what was held back and turns out to be plain text."""

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


def context_items(
    held: Conversation, parent: SealNode | None, entries: Sequence[EntryId]
) -> list[ContextItem]:
    """Return the context a new seal of `entries` on `parent` would have.

    Raises BodyUnavailable where a body is missing here.
    """
    lists = [node.seal.entries for node in parent.chain()] if parent is not None else []
    items = []
    for listed in (*lists, tuple(entries)):
        for entry_id in listed:
            body = held.log.body(entry_id)
            if body is None and not held.log.is_malformed(entry_id):
                raise BodyUnavailable(missing=(entry_id,))
            items.append(ContextItem(entry_id, body, is_final=entry_id == listed[-1]))
    return items


def check_obligations(items: Sequence[ContextItem]) -> None:
    """Raise ObligationsOpen where a tool call of the context has no result."""
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
    """Check a request whose turn has come, render its context and word its seal.

    Raises a GenerationRefused or TokenizerBytesMissing: the host logs it as a
    refused generation.
    """
    request = held.order.request(ready.request)
    if request is None:
        raise BodyUnavailable(missing=(ready.request,))
    if request.profile not in (None, profile.digest):
        raise ProfileUnknown
    items = context_items(held, ready.parent, ready.entries)
    check_obligations(items)
    rendered = rendering.render(items, template, encoder)
    prompt = tuple(rendered.token_ids)
    room = profile.context_tokens_max - len(prompt)
    if room < 1:
        raise ContextTooLong(
            f"the context has {len(prompt)} tokens, the model holds {profile.context_tokens_max}"
        )
    wanted = request.output_tokens_max or room
    return Plan(
        held.id,
        ready.request,
        request,
        _seal(ready, rendered, profile, template, encoder),
        prompt,
        min(wanted, room),
        _draw_offset(items),
    )


def _draw_offset(items: Sequence[ContextItem]) -> int:
    """Count the output tokens this answer continues, so that draws go on where they ended."""
    count = 0
    for item in reversed(items[:-1]):
        if not isinstance(item.body, (Generation, Request)):
            break
        count += len(item.body.token_ids) if isinstance(item.body, Generation) else 0
    return count


def _seal(
    ready: Sealable, rendered: Rendered, profile: Profile, template: Template, encoder: Encoder
) -> Seal:
    new = rendered.tokens[-len(ready.entries) :]
    digest = rendering.render_seed(encoder.digest, template.digest)
    for entry_id, ids in rendered.tokens:
        digest = rendering.extend_render_digest(digest, entry_id, ids)
    listed = set(ready.entries)
    return Seal(
        request=ready.request,
        prev_seal=ready.parent.id if ready.parent is not None else None,
        entries=ready.entries,
        profile=profile.digest,
        context_digest=ready.context_digest,
        render_digest=digest,
        tokens_per_entry=tuple(len(ids) for _, ids in new),
        membership_heads=ready.membership_heads,
        projections=tuple(p for p in rendered.projections if p.entry in listed),
    )


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from one token: journal it, then show it, then go on or finish."""

    token_id: int
    data: bytes
    finish: FinishReason | None
    finish_detail: str = ""


@dataclass(slots=True)
class Run:
    """One run of one plan: the tokens so far and what is visible of them."""

    plan: Plan
    seal_id: EntryId
    run: int
    sampler: Sampler
    text: VisibleText
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

    def take(self, token_id: int) -> Step:
        """Take a token, chosen now or read back from the journal."""
        self.token_ids.append(token_id)
        finish, detail = self._finish_after(token_id)
        shown = b"" if token_id in self.stop_ids else self.text.push(token_id)
        if finish is None and self.text.stopped_by is not None:
            finish, detail = FinishReason.STOP, f"stop string {self.text.stopped_by!r}"
        if finish is not None and self.text.stopped_by is None:
            shown += self.text.finish()
        self._draft(token_id, shown)
        if finish is not None:
            self.finished = (finish, detail)
        return Step(token_id, shown, finish, detail)

    def _finish_after(self, token_id: int) -> tuple[FinishReason | None, str]:
        if token_id in self.stop_ids:
            return FinishReason.STOP, "end of turn"
        if len(self.plan.prompt) + len(self.token_ids) >= self.context_tokens_max:
            return FinishReason.CONTEXT_LIMIT, "the context is full"
        if len(self.token_ids) >= self.plan.output_tokens_max:
            return FinishReason.LENGTH, "output_tokens_max"
        return None, ""

    def _draft(self, token_id: int, data: bytes) -> None:
        # One frame per token: after a crash the frames fall on the same borders.
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
        """Return the frame that tells readers how far the prompt is."""
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
        """End the run early, with what there is; bytes held back are not shown."""
        self.finished = (finish, detail)

    def generation(self, usage: Usage, *, profile: Profile, numerics_class: Digest) -> Generation:
        """Word the generation entry of a finished run."""
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
            sampler_digest=profile.sampler_digest,
            render_recipe_digest=profile.render_recipe_digest,
            draft_digest=self.digest,
            numerics_class=numerics_class,
            run=self.run,
        )


_JOURNAL_FORM = struct.Struct("<8s32s32sQ32s32s")
_JOURNAL_MAGIC = b"AJRNL01\n"


@dataclass(frozen=True, slots=True)
class JournalHead:
    """First record of a journal: what must still be true for the run to resume."""

    request: EntryId
    seal: EntryId
    run: int
    profile: Digest
    numerics_class: Digest

    def encode(self) -> bytes:
        """Return the fixed-width record."""
        return _JOURNAL_FORM.pack(
            _JOURNAL_MAGIC, self.request, self.seal, self.run, self.profile, self.numerics_class
        )

    @classmethod
    def decode(cls, data: bytes) -> "tuple[JournalHead, list[int]] | None":
        """Read head and tokens; None for a head that was cut off, a torn last token is dropped."""
        if len(data) < _JOURNAL_FORM.size or not data.startswith(_JOURNAL_MAGIC):
            return None
        _, request, seal, run, profile, numerics = _JOURNAL_FORM.unpack_from(data)
        rest = data[_JOURNAL_FORM.size :]
        count = len(rest) // 4
        head = cls(EntryId(request), EntryId(seal), run, Digest(profile), Digest(numerics))
        return head, list(struct.unpack(f"<{count}I", rest[: 4 * count]))


def encode_journal_token(token_id: int) -> bytes:
    """Return the record of one token."""
    return token_id.to_bytes(4, "little")
