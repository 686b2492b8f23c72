"""The rendering recipe: from context to tokens (spec/07-host §2).

Pure. A template runs once, with a sentinel in place of each content, and its
output is split at the sentinels. So control tokens come from the template's own
literals alone, contents are tokenised as plain text, and recorded ids are
inserted exactly as they were produced.

The text between two contents, closing mark included, belongs to the entry that
opens the next turn. Rendering is therefore append-only: a longer context has the
tokens of the shorter one as its prefix.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from model_host.refusals import (
    MediaUnsupported,
    OpaqueRequired,
    TemplateUnsupported,
    TokensControl,
    TokensForeign,
    ToolsUnsupported,
)
from replica.ids import Digest, EntryId, short, tagged_sha256
from replica.log import (
    CONTINUABLE,
    Body,
    Generation,
    Media,
    Message,
    Need,
    Opaque,
    Outcome,
    Part,
    Projected,
    Request,
    Speaker,
    Text,
    Tokens,
    ToolResult,
    Tools,
)

RECIPE = (
    b"antiphon/v1/render-recipe:2 sentinel-split next-entry-closes ids-spliced follow-continues"
)
RECIPE_DIGEST = tagged_sha256(b"antiphon/v1/render-recipe", RECIPE)

ROLES = {
    Speaker.SYSTEM: "system",
    Speaker.USER: "user",
    Speaker.ASSISTANT: "assistant",
    Speaker.TOOL: "tool",
}
"""Role names by speaker; free text never becomes part of a template literal."""


class Encoder(Protocol):
    """The part of a tokenizer that rendering uses."""

    @property
    def digest(self) -> Digest:
        """Return the tokenizer's digest."""

    @property
    def token_count(self) -> int:
        """Return the size of the vocabulary; every id is below it."""

    def encode(self, text: str) -> list[int]:
        """Tokenise content: control tokens in it are plain text."""

    def encode_template(self, text: str) -> list[int]:
        """Tokenise a template literal: control tokens in it are control tokens."""

    def is_control(self, token_id: int) -> bool:
        """Say whether only template literals and models may produce a token."""


@dataclass(frozen=True, slots=True)
class ContextItem:
    """One entry of a context; `is_final` if it is the last one its seal lists.

    A body of None did not parse: the entry is listed, and renders to no tokens.
    """

    entry: EntryId
    body: Body | None
    is_final: bool
    parents: tuple[EntryId, ...] = ()


@dataclass(frozen=True, slots=True)
class Rendered:
    """Tokens per entry, in context order, and the outcome for each opaque part."""

    tokens: tuple[tuple[EntryId, tuple[int, ...]], ...]
    projections: tuple[Projected, ...]
    continued_tokens: int
    """Number of recorded ids at the end, in the turn that the last request continues."""

    @property
    def token_ids(self) -> list[int]:
        """All tokens of the context."""
        return [i for _, ids in self.tokens for i in ids]


@dataclass(slots=True)
class _Turn:
    """One message of the template: the index of its opening entry, and its content so far."""

    role: str
    opener: int
    pieces: list[tuple[int, list[int]]] = field(default_factory=list)
    ids_end: int | None = None
    """The last id, if the content ends with recorded ids."""


class Template:
    """A chat template, identified by its digest and run in a sandbox with fixed inputs."""

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        """Compile `source`. Raises TemplateUnsupported."""
        self.digest = tagged_sha256(b"antiphon/v1/template", source.encode())
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _raise
        # With a clock, two renderings of one log would differ.
        environment.globals["strftime_now"] = _no_clock
        self._fixed = {"bos_token": bos_token, "eos_token": eos_token, "tools": None}
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise TemplateUnsupported(f"the template does not compile: {error}") from error

    def render(self, messages: Sequence[tuple[str, str]], *, header: bool) -> str:
        """Return the text for (role, content) messages, with the assistant header if asked."""
        try:
            return self._template.render(
                messages=[{"role": role, "content": content} for role, content in messages],
                add_generation_prompt=header,
                **self._fixed,
            )
        except Exception as error:  # a template is a program, which may divide by zero
            raise TemplateUnsupported(f"the template refuses this context: {error}") from error

    def literals(self, roles: Sequence[str], *, header: bool) -> list[str]:
        """Return the texts before, between and after the contents of turns with these roles.

        There is one more than there are roles. Raises TemplateUnsupported if the template
        changes, repeats or drops a content.
        """
        sentinels = [f"\u2983antiphon{i}\u2984" for i in range(len(roles))]
        text = self.render(list(zip(roles, sentinels, strict=True)), header=header)
        literals = _SENTINEL.split(text)
        if _SENTINEL.findall(text) != sentinels:
            raise TemplateUnsupported("the template changes, repeats or drops a content")
        return literals


_SENTINEL = re.compile("\u2983antiphon[0-9]+\u2984")


def _raise(message: str) -> None:
    raise TemplateError(message)


def _no_clock(_format: str) -> str:
    raise TemplateError("the template asks for the date; log it as a system message instead")


def render(context: Sequence[ContextItem], template: Template, encoder: Encoder) -> Rendered:
    """Render a context.

    Raises ToolsUnsupported, MediaUnsupported, OpaqueRequired, TokensControl,
    TokensForeign, TokenizerBytesMissing or TemplateUnsupported, which the host logs.
    """
    tokens: list[list[int]] = [[] for _ in context]
    projections: list[Projected] = []
    turns = _turns(context, encoder, projections)
    is_open = bool(turns) and not turns[-1].pieces
    shown = turns[:-1] if is_open else turns
    literals = template.literals([turn.role for turn in shown], header=is_open)
    before: _Turn | None = None
    for number, turn in enumerate(turns):
        # The literal after the last content is the header of an open turn.
        literal = encoder.encode_template(literals[number])
        if before is not None and before.ids_end is not None and literal[:1] == [before.ids_end]:
            literal = literal[1:]  # the recorded ids close the turn already
        tokens[turn.opener] += literal
        for index, ids in turn.pieces:
            tokens[index] += ids
        before = turn
    return Rendered(
        tuple((item.entry, tuple(ids)) for item, ids in zip(context, tokens, strict=True)),
        tuple(projections),
        _continued_tokens(context, turns),
    )


def _turns(
    context: Sequence[ContextItem], encoder: Encoder, projections: list[Projected]
) -> list[_Turn]:
    turns: list[_Turn] = []
    for index, item in enumerate(context):
        match item.body:
            case Tools():
                raise ToolsUnsupported
            case Message(speaker, parts):
                turn = _Turn(_role(speaker), index)
                turn.pieces.append((index, _content(item.entry, parts, encoder, projections)))
                turns.append(turn)
            case Request() if item.is_final:
                if not _continues(context, index):
                    turns.append(_Turn(ROLES[Speaker.ASSISTANT], index))
            case Generation() as generation:
                after_request = index > 0 and _opens_answer(context[index - 1])
                if not (after_request and turns):
                    turns.append(_Turn(ROLES[Speaker.ASSISTANT], index))
                ids = _generated(item.entry, generation, encoder, projections)
                turns[-1].pieces.append((index, ids))
                turns[-1].ids_end = ids[-1] if ids else turns[-1].ids_end
            case _:
                pass
    return turns


def _role(speaker: int) -> str:
    if speaker not in ROLES:
        raise TemplateUnsupported(f"the template has no role for speaker {speaker}")
    return ROLES[Speaker(speaker)]


def _own_ids(token_ids: Sequence[int], encoder: Encoder) -> list[int]:
    """Return recorded ids as a list. Raises TokensForeign for an id beyond the vocabulary."""
    if max(token_ids, default=0) >= encoder.token_count:
        raise TokensForeign(f"token {max(token_ids)} of {encoder.token_count}")
    return list(token_ids)


def _message_ids(token_ids: Sequence[int], encoder: Encoder) -> list[int]:
    """Return ids written by a member as a list. Raises TokensForeign, TokensControl."""
    ids = _own_ids(token_ids, encoder)
    for token_id in ids:
        if encoder.is_control(token_id):
            raise TokensControl(f"token {token_id}")
    return ids


def _generated(
    entry: EntryId, generation: Generation, encoder: Encoder, projections: list[Projected]
) -> list[int]:
    """Return the ids of an answer; they enter the context in place of its parts."""
    for number, part in enumerate(generation.parts):
        for opaque in _opaque_in(part):
            _project(opaque)
            # The text of an answer is never tokenised, so its fallback has no ids.
            projections.append(Projected(entry, number, Outcome.DROPPED))
    if generation.parts and not generation.token_ids:
        raise TokensForeign(f"the answer {short(entry)} has parts and no token ids")
    return _own_ids(generation.token_ids, encoder)


def _opaque_in(part: Part) -> Iterator[Opaque]:
    match part:
        case Opaque():
            yield part
        case ToolResult(_, inner, _):
            for piece in inner:
                yield from _opaque_in(piece)
        case _:
            pass


def _opens_answer(item: ContextItem) -> bool:
    return isinstance(item.body, Request) and item.is_final


def _continues(context: Sequence[ContextItem], index: int) -> bool:
    """Say whether the request at `index` continues the answer right before it.

    A request that follows the answer was written after it was cut off. One that was
    queued behind it opens a turn of its own.
    """
    if index == 0:
        return False
    before = context[index - 1]
    is_cut_off = isinstance(before.body, Generation) and before.body.finish_reason in CONTINUABLE
    return is_cut_off and before.entry in context[index].parents


def _continued_tokens(context: Sequence[ContextItem], turns: Sequence[_Turn]) -> int:
    """Count the recorded ids of the turn that the last request continues; 0 for a new turn."""
    asked = bool(context) and _opens_answer(context[-1])
    return sum(len(ids) for _, ids in turns[-1].pieces) if asked else 0


def _content(
    entry: EntryId,
    parts: tuple[Part, ...],
    encoder: Encoder,
    projections: list[Projected],
    within: int | None = None,
) -> list[int]:
    """Tokenise parts; those of a tool result are `within` the entry's part of this index."""
    ids: list[int] = []
    text = ""
    for index, part in enumerate(parts):
        number = index if within is None else within
        match part:
            case Text(piece):
                text += piece
            case Tokens(token_ids, digest):
                if digest != encoder.digest:
                    raise TokensForeign(f"ids of a part of {short(entry)}")
                ids += [*encoder.encode(text), *_message_ids(token_ids, encoder)]
                text = ""
            case Opaque():
                outcome = _project(part)
                projections.append(Projected(entry, number, outcome))
                text += part.fallback_text if outcome is Outcome.DEGRADED else ""
            case ToolResult(_, inner, _):
                ids += encoder.encode(text)
                ids += _content(entry, inner, encoder, projections, number)
                text = ""
            case Media():
                raise MediaUnsupported
            case _:
                raise ToolsUnsupported
    return [*ids, *encoder.encode(text)] if text else ids


def _project(part: Opaque) -> Outcome:
    """Return the outcome for a part that this host can't open. Raises OpaqueRequired."""
    match part.need:
        case Need.PREFERRED:
            return Outcome.DEGRADED
        case Need.DROPPABLE:
            return Outcome.DROPPED
        case _:
            raise OpaqueRequired(f"a required part can be opened by {part.issuer} only")


def render_seed(tokenizer: Digest, template: Digest) -> Digest:
    """Return the render digest of the empty context."""
    return tagged_sha256(b"antiphon/v1/render", tokenizer + template + RECIPE_DIGEST)


def render_digests(rendered: Rendered, template: Template, encoder: Encoder) -> list[Digest]:
    """Return the render digest of each prefix of a context, from the empty one to the whole."""
    digests = [render_seed(encoder.digest, template.digest)]
    for entry, ids in rendered.tokens:
        digests.append(extend_render_digest(digests[-1], entry, ids))
    return digests


def extend_render_digest(digest: Digest, entry: EntryId, token_ids: Sequence[int]) -> Digest:
    """Extend a digest by one entry: previous ‖ id ‖ count ‖ ids, numbers 4 B little-endian."""
    packed = b"".join(i.to_bytes(4, "little") for i in (len(token_ids), *token_ids))
    return Digest(hashlib.sha256(digest + entry + packed).digest())


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """The result of the check of a template at load."""

    append_only: bool
    sentinels_equal_plain: bool


_HARMLESS = (
    ("system", "Answer briefly."),
    ("user", "How tall is the tower?"),
    ("assistant", "It is 300 metres tall."),
    ("user", "And how old?"),
    ("assistant", "About 130 years."),
)


def check_template(template: Template, encoder: Encoder) -> TemplateReport:
    """Check a template on plain texts (spec/07-host §2, HOST-9).

    A template that rewrites history is allowed and reported; the host then reuses the
    common prefix. Raises TemplateUnsupported for a template that does not run.
    """
    append_only = equal = True
    for start in (0, 1):
        previous: list[int] = []
        for count in range(start + 1, len(_HARMLESS) + 1):
            messages = _HARMLESS[start:count]
            header = messages[-1][0] == "user"
            roles = [role for role, _ in messages]
            literals = template.literals(roles, header=header)
            # The text after the last content belongs to the next entry, except the header.
            literals[-1] = literals[-1] if header else ""
            ids = encoder.encode_template(literals[0])
            text = literals[0]
            for (_, content), literal in zip(messages, literals[1:], strict=True):
                ids += encoder.encode(content) + encoder.encode_template(literal)
                text += content + literal
            append_only &= ids[: len(previous)] == previous
            plain = template.render(messages, header=header)
            equal &= encoder.encode_template(plain[: len(text)]) == ids
            previous = ids
    return TemplateReport(append_only, equal)
