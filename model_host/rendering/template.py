"""Chat templates: their literals, and the check at load (spec/07-host §2). Pure.

A template runs with a sentinel in place of each content, and its output is split at the
sentinels into *literals*: the texts before, between and after the contents. The literals of
a *local* template depend only on the two roles they stand between, and its headers on the
role before. They are computed once, at load. Any other template runs over the whole context
each time.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, Protocol, Self

from model_host.refusals import TemplateUnsupported
from model_host.template_sandbox import REFUSES, Messages, Sandbox, TemplateFault
from replica.ids import Digest, tagged_sha256
from replica.log import Speaker

ROLES = {
    Speaker.SYSTEM: "system",
    Speaker.USER: "user",
    Speaker.ASSISTANT: "assistant",
    Speaker.TOOL: "tool",
}
"""Role names by speaker; free text never becomes part of a template literal."""

LOCAL_TURNS = 4
"""A template is local if its literals are so for all sequences of up to this many turns."""

_SENTINEL = re.compile("\u2983antiphon[0-9]+\u2984")


class Encoder(Protocol):
    """The part of a tokenizer that rendering uses."""

    @property
    def digest(self) -> Digest:
        """Return the tokenizer's digest."""

    @property
    def token_count(self) -> int:
        """Return the size of the vocabulary; every id is below it."""

    @property
    def token_bytes_max(self) -> int:
        """Return the most bytes of content that one token stands for."""

    def encode(self, text: str) -> list[int]:
        """Tokenise content: control tokens in it are plain text."""

    def encode_template(self, text: str, *, begins: bool = False) -> list[int]:
        """Tokenise a template literal: control tokens in it are control tokens.

        `begins` says that a context begins with it.
        """

    def adds_space(self, literal: str, *, begins: bool = False) -> bool:
        """Say whether a text behind this literal begins with a space that nobody wrote."""

    def is_control(self, token_id: int) -> bool:
        """Say whether only template literals and models may produce a token."""


class Opening(NamedTuple):
    """The literal that opens a turn, as token ids."""

    ids: list[int]
    before_space: list[int] | None = None
    """The same, where a text behind it begins with a space."""

    @classmethod
    def of(cls, encoder: Encoder, literal: str, *, begins: bool = False) -> Self:
        """Tokenise a literal; `begins` says that a context begins with it.

        A space at its end is tokenised with the text behind it, as models are trained to read it.
        """
        ids = encoder.encode_template(literal, begins=begins)
        if literal.endswith(" "):
            return cls(ids, encoder.encode_template(literal[:-1], begins=begins))
        return cls(ids, ids if encoder.adds_space(literal, begins=begins) else None)


class Run(Protocol):
    """What runs a template."""

    def __call__(self, messages: Messages, *, header: bool) -> str:
        """Return the text for messages, with the header if asked. Raises TemplateUnsupported."""


class Template:
    """A chat template, identified by its digest and run in a sandbox with fixed inputs."""

    def __init__(
        self, source: str, *, bos_token: str = "", eos_token: str = "", run: Run | None = None
    ) -> None:
        """Have `source` run by `run`; without it compile and run it here, without any bounds.

        Raises TemplateUnsupported.
        """
        self.digest = _digest(source, bos_token, eos_token)
        self._run = run or _run_here(source, bos_token, eos_token)

    def render(self, messages: Sequence[tuple[str, str]], *, header: bool) -> str:
        """Return the text for (role, content) messages, with the assistant header if asked."""
        return self.render_messages(
            [{"role": role, "content": content} for role, content in messages], header=header
        )

    def render_messages(self, messages: Messages, *, header: bool) -> str:
        """Return the text for messages with any fields. Raises TemplateUnsupported."""
        return self._run(messages, header=header)

    def literals(self, roles: Sequence[str], *, header: bool) -> list[str]:
        """Return the texts before, between and after the contents of turns with these roles.

        There is one more than there are roles. Raises TemplateUnsupported if the template
        changes, repeats or drops a content.
        """
        sentinels = [f"\u2983antiphon{i}\u2984" for i in range(len(roles))]
        text = self.render(list(zip(roles, sentinels, strict=True)), header=header)
        literals = _SENTINEL.split(text)
        if _SENTINEL.findall(text) != sentinels:
            raise TemplateUnsupported(f"{REFUSES}it changes, repeats or drops a content")
        return literals


def _run_here(source: str, bos_token: str, eos_token: str) -> Run:
    """Compile a template in this process. Raises TemplateUnsupported."""

    def run(messages: Messages, *, header: bool) -> str:
        try:
            return sandbox.render(messages, header=header)
        except TemplateFault as fault:
            raise TemplateUnsupported(str(fault)) from fault

    try:
        sandbox = Sandbox(source, bos_token=bos_token, eos_token=eos_token)
    except TemplateFault as fault:
        raise TemplateUnsupported(str(fault)) from fault
    return run


def _digest(*texts: str) -> Digest:
    """Return the digest of a source and of the texts inserted for its two tokens."""
    items = [text.encode() for text in texts]
    framed = b"".join(len(item).to_bytes(4, "little") + item for item in items)
    return tagged_sha256(b"antiphon/v1/template", framed)


# --- literals that contexts share --------------------------------------------------------

Pair = tuple[str | None, str]
"""The role of the turn before, None for the first turn, and the role of the turn opened."""

Pairs = Mapping[Pair, str | None]
"""The literal that opens a turn, by pair; None where the template refuses the turn there."""

Headers = Mapping[str, str]
"""The header of an answer, by the role of the turn before, where it depends on that alone."""


def find_pairs(template: Template) -> Pairs | None:
    """Return the literals of a local template, None for any other.

    The literals of each sequence must be those that shorter sequences gave its pairs. Of a role
    that only the longest sequences have, nothing says what comes behind it.
    """
    pairs: dict[Pair, str | None] = {}
    for turns in _sequences(LOCAL_TURNS):
        steps: list[Pair] = list(zip((None, *turns), turns, strict=False))
        is_refused = any(pairs.get(step, "") is None for step in steps)
        try:
            found = template.literals(turns, header=False)
        except TemplateUnsupported:
            # The same turns without the last one were tried before: the last pair is the cause.
            if not is_refused and pairs.setdefault(steps[-1], None) is not None:
                return None
            continue
        # The last literal closes a turn: it is part of the next opening.
        if is_refused or found[:-1] != list(map(pairs.setdefault, steps, found)):
            return None
    rendered = {role for (_, role), literal in pairs.items() if literal is not None}
    return pairs if all(step in pairs for step in product(rendered, ROLES.values())) else None


def find_headers(template: Template) -> Headers:
    """Return the headers that depend on the role before alone.

    Where the template refuses the answer itself, its header means nothing.
    """
    headers: dict[str, str | None] = {}
    for turns in _sequences(LOCAL_TURNS - 1):
        with suppress(TemplateUnsupported):
            template.literals((*turns, ROLES[Speaker.ASSISTANT]), header=False)
            header = _header(template, turns)
            if headers.setdefault(turns[-1], header) != header:
                headers[turns[-1]] = None
    return {role: header for role, header in headers.items() if header is not None}


def _header(template: Template, turns: Sequence[str]) -> str | None:
    try:
        return template.literals(turns, header=True)[-1]
    except TemplateUnsupported:
        return None


def is_local(pairs: Pairs | None, headers: Headers) -> bool:
    """Say whether literals and headers follow from the roles next to them."""
    answers = (
        before
        for (before, role), literal in (pairs or {}).items()
        if role == ROLES[Speaker.ASSISTANT] and before is not None and literal is not None
    )
    return pairs is not None and all(before in headers for before in answers)


def _sequences(turns_max: int) -> Iterator[tuple[str, ...]]:
    """Yield the roles of up to so many turns."""
    for count in range(1, turns_max + 1):
        yield from product(ROLES.values(), repeat=count)


# --- the check at load --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """The result of the check of a template at load."""

    append_only: bool
    sentinels_equal_plain: bool


def has_system_turns(template: Template) -> bool:
    """Say whether a conversation of some turns may begin with one of the system."""
    system, user, assistant, _ = ROLES.values()
    turns = [system, user, assistant, user]
    try:
        for count in (2, 4):
            template.literals(turns[:count], header=True)
    except TemplateUnsupported:
        return False
    return True


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
    common prefix. So is one without system turns. Raises TemplateUnsupported for a template
    that does not run.
    """
    append_only = equal = True
    for start in (0, 1) if has_system_turns(template) else (1,):
        previous: list[int] = []
        # Some templates put a system message into the user's turn behind it.
        for count in range(2, len(_HARMLESS) + 1):
            messages = _HARMLESS[start:count]
            ids, text = _plain(template, encoder, messages)
            rendered = template.render(messages, header=False)
            equal &= encoder.encode_template(rendered[: len(text)], begins=True) == ids
            asked, _ = _plain(template, encoder, messages, asks=messages[-1][0] == "user")
            append_only &= asked[: len(previous)] == previous
            previous = asked
    return TemplateReport(append_only, equal)


def _plain(
    template: Template,
    encoder: Encoder,
    messages: Sequence[tuple[str, str]],
    *,
    asks: bool | None = None,
) -> tuple[list[int], str]:
    """Return messages as token ids and text, up to the last content.

    With `asks` the answers were asked for, and begin with headers; if true, the next one is.
    """
    roles = [role for role, _ in messages]
    literals = template.literals(roles, header=False)
    literals[-1] = ""  # it belongs to the next entry
    if asks is not None:
        for index, role in enumerate(roles):
            if role == ROLES[Speaker.ASSISTANT]:
                literals[index] = template.literals(roles[:index], header=True)[-1]
    if asks:
        literals[-1] = template.literals(roles, header=True)[-1]
    ids, text = list[int](), ""
    for index, (literal, (_, content)) in enumerate(zip(literals, messages, strict=False)):
        opening = Opening.of(encoder, literal, begins=index == 0)
        if opening.before_space is not None:
            ids += opening.before_space + encoder.encode(f" {content}")
        else:
            ids += opening.ids + encoder.encode(content)
        text += literal + content
    return ids + encoder.encode_template(literals[-1]), text + literals[-1]
