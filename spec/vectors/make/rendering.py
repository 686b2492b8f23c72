"""The rendering of spec/07-host §2 and §8, from its text alone: the whole context at once.

Each reading in READINGS is a likely misreading; the right one is none of them.
"""

import json
import struct
from dataclasses import dataclass, field
from typing import Any

from spec.vectors.make.bpe import BytesMissingError, Tokenizer
from spec.vectors.make.build import pae, sha256
from spec.vectors.make.templates import (
    FORMATS_DIGEST,
    NO_TOOLS,
    REPLACING,
    ROLES,
    RefusedError,
    Template,
)

RECIPE = (
    b"antiphon/v1/render-recipe:7 sentinel-split pairs-if-local next-entry-closes ids-spliced "
    b"follow-continues tools-in-system-turns user-turns-joined foreign-results-dropped "
    b"spaces-with-text default-system-with-tools formats:" + FORMATS_DIGEST
)
RECIPE_DIGEST = sha256(pae("antiphon/v1/render-recipe", RECIPE))
LENGTH, CANCELLED, INTERRUPTED = 2, 5, 6
SYSTEM = 1
CONTINUABLE = (LENGTH, CANCELLED, INTERRUPTED)
PREFERRED, DROPPABLE = 2, 3
DEGRADED, DROPPED = 2, 3
READINGS = {
    "control": "typed control tokens are control tokens",
    "again": "the text of an answer is tokenised again",
    "apart": "each part is tokenised for itself",
    "twice": "a turn that its answer closed is closed again",
    "opens": "a request after an unfinished answer opens a turn",
    "continues": "a queued request continues an unfinished answer",
    "typed-over": "every request has a header",
    "foreign": "results of any author count",
    "run-together": "messages of one turn run together",
    "rewrites": "a header is replaced by the opening of its answer's turn later",
    "results-first": "the results of a message are looked at before its calls",
    "headers-run": "a known header is looked for in longer contexts too",
    "runs-on": "the text of a result runs into the text behind it",
    "answers-apart": "an answer to another request opens a turn behind a header",
    "spaces-apart": "the space before a text is a part of the literal",
    "default-lost": "tools take the place of the template's own system text",
    "default-kept": "the template's own system text stays before a system message",
}

Vector = dict[str, Any]


class Text:
    """Content under construction: plain text up to the next literal or id is tokenised as one."""

    def __init__(self, tokenizer: Tokenizer, reading: str) -> None:
        self._tokenizer, self._reading = tokenizer, reading
        self.ids: list[int] = []
        self.plain = ""

    def add(self, text: str) -> None:
        """Add plain text."""
        self.plain += text
        if self._reading == "apart":
            self.flush()

    def add_ids(self, ids: list[int]) -> None:
        """Add ids as they are."""
        self.flush()
        self.ids += ids

    def add_literal(self, text: str) -> None:
        """Add a literal, which is tokenised for itself."""
        self.add_ids(self._tokenizer.encode_literal(text))

    def flush(self) -> list[int]:
        """Tokenise the plain text so far; return all ids."""
        typed = self._reading == "control"
        encode = self._tokenizer.encode_literal if typed else self._tokenizer.encode
        self.ids += encode(self.plain)
        self.plain = ""
        return self.ids


@dataclass
class Fragment:
    """The tokens of one entry: the role of a turn it opens, and content or none."""

    entry: str
    opens: str | None = None
    ids: list[int] | None = None
    spaced: list[int] | None = None
    """The content behind a space, if it begins with text."""
    recorded: bool = False
    asked: bool = False


@dataclass
class Rendering:
    """One pass over the entries of a context."""

    tokenizer: Tokenizer
    template: Template
    reading: str = ""
    fragments: list[Fragment] = field(default_factory=list)
    projections: list[list[object]] = field(default_factory=list)
    calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Requester and executor of each call."""
    asked: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Requester and executor of each request."""
    last_asked: tuple[str, str] | None = None
    last: Vector | None = None
    last_is_final: bool = False
    role: str | None = None
    turn_offers: bool = False
    had_tools: bool = False

    def add(self, entry: Vector, owners: list[str], behind: list[Vector]) -> None:
        """Add the next entry; `behind` it are the rest of its seal's list."""
        final = not behind
        body = entry["body"] or {}
        kind = next(iter(body), None)
        fragment = Fragment(entry["id"])
        if kind == "tools":
            fragment = self._tools(entry["id"], body["tools"], behind)
        elif kind == "message":
            fragment = self._message(entry, body["message"], owners)
        elif kind == "request":
            asked = entry["author"], body["request"]["executor"] or entry["author"]
            self.asked[entry["id"]] = self.last_asked = asked
            if final or self.reading == "typed-over":
                fragment.opens = None if self._continues(entry) else "assistant"
                fragment.asked = fragment.opens is not None
        elif kind == "generation":
            fragment = self._answer(entry["id"], body["generation"])
        offered = kind == "tools" and fragment.ids is not None
        self.turn_offers = offered or (self.turn_offers and fragment.opens is None)
        self.role = fragment.opens or self.role
        self.fragments.append(fragment)
        self.last, self.last_is_final = entry, final

    def _continues(self, request: Vector) -> bool:
        body = (self.last or {}).get("body") or {}
        if body.get("generation", {}).get("finish_reason") not in CONTINUABLE:
            return False
        named = self.last is not None and self.last["id"] in request["parents"]
        return (named or self.reading == "continues") and self.reading != "opens"

    # --- contents ---------------------------------------------------------------------------

    def _text(self) -> Text:
        return Text(self.tokenizer, self.reading)

    def _tools(self, entry: str, tools: list[Vector], behind: list[Vector]) -> Fragment:
        replaces, joins = self.had_tools, self.role == "system"
        self.had_tools = self.had_tools or bool(tools)
        if not tools and not replaces:
            return Fragment(entry)
        if not self.template.has_system:
            raise RefusedError("TOOLS_UNSUPPORTED")
        known, text = self.template.format, self._text()
        if joins:
            text.add_literal("\n\n")
        elif self.role is None and self._has_default(behind):
            text.add_literal(self.template.default_system)
            text.add_literal("\n\n")
        if not tools:
            text.add_literal(NO_TOOLS)
        else:
            if replaces:
                text.add_literal(REPLACING)
            text.add_literal(known.heading)
            for number, tool in enumerate(tools):
                if number:
                    text.add_literal(known.between)
                text.add(_definition(tool))
            text.add_literal(known.closing)
        return Fragment(entry, None if joins else "system", text.flush())

    def _has_default(self, behind: list[Vector]) -> bool:
        """Say whether the template's own system text comes before tools at the beginning."""
        if self.reading == "default-lost" or not self.template.default_system:
            return False
        bodies = [entry["body"] or {} for entry in behind]
        said = [body for body in bodies if "message" in body or "generation" in body][:1]
        speaker = said[0].get("message", {}).get("speaker") if said else None
        return speaker != SYSTEM or self.reading == "default-kept"

    def _message(self, entry: Vector, body: Vector, owners: list[str]) -> Fragment:
        asked = self.last_asked
        opener = asked if asked is not None and asked[1] == entry["author"] else None
        foreign = self._follow(entry["author"], body["parts"], opener, owners)
        if body["speaker"] not in ROLES:
            raise RefusedError("TEMPLATE_UNSUPPORTED")
        role = ROLES[body["speaker"]]
        role = self.template.result_role if role == "tool" else role
        if role == "system" and not self.template.has_system:
            raise RefusedError("TEMPLATE_UNSUPPORTED")
        text = self._text()
        joins = role == self.role and (
            (role == "system" and self.turn_offers) or (role == "user" and self.template.joins_user)
        )
        if joins:
            text.add_literal("" if self.reading == "run-together" else "\n\n")
            text, before = self._text(), text.flush()
        projections = list(self.projections)
        ids = self._parts(text, entry["id"], body["parts"], foreign)
        if joins:
            return Fragment(entry["id"], None, before + ids)
        spaced = None
        if body["parts"] and body["parts"][0].get("text"):
            self.projections = projections
            text = self._text()
            text.add(" ")
            spaced = self._parts(text, entry["id"], body["parts"], foreign)
        return Fragment(entry["id"], role, ids, spaced)

    def _parts(self, text: Text, entry: str, parts: list[Vector], foreign: set[int]) -> list[int]:
        for number, part in enumerate(parts):
            if number in foreign:
                self.projections.append([entry, number, DROPPED])
            else:
                self._part(text, part, entry, number)
        return text.flush()

    def _part(self, text: Text, part: Vector, entry: str, number: int) -> None:
        kind, value = next(iter(part.items()))
        known = self.template.format
        if kind == "text":
            text.add(value)
        elif kind == "tokens":
            if value["tokenizer_digest"] != self.tokenizer.digest.hex():
                raise RefusedError("TOKENS_FOREIGN")
            self._known(value["token_ids"])
            if any(map(self.tokenizer.is_control, value["token_ids"])):
                raise RefusedError("TOKENS_CONTROL")
            text.add_ids(value["token_ids"])
        elif kind == "opaque":
            self._opaque(text, value, entry, number)
        elif kind == "tool_call":
            self._begin_line(text)
            if known.call_begins:
                text.add_literal(known.call_begins)
            text.add(known.call(value["name"], value["arguments_json"]))
            if known.call_ends:
                text.add_literal(known.call_ends)
        elif kind == "tool_result":
            self._begin_line(text)
            marks = self.template.marks_results
            text.add_literal(known.result_begins if marks else "")
            if value["is_error"]:
                text.add_literal("Error: " if value["parts"] else "Error")
            for inner in value["parts"]:
                self._part(text, inner, entry, number)
            ends = known.result_ends if marks else ""
            if ends or self.reading != "runs-on":
                text.add_literal(ends)
        elif kind == "media":
            raise RefusedError("MEDIA_UNSUPPORTED")

    def _opaque(self, text: Text, value: Vector, entry: str, number: int) -> None:
        if value["need"] not in (PREFERRED, DROPPABLE):
            raise RefusedError("OPAQUE_REQUIRED")
        degraded = value["need"] == PREFERRED
        self.projections.append([entry, number, DEGRADED if degraded else DROPPED])
        text.add(value["fallback_text"] if degraded else "")

    def _begin_line(self, text: Text) -> None:
        if text.plain or text.ids:
            text.add_literal("\n")

    def _known(self, ids: list[int]) -> None:
        if max(ids, default=0) >= len(self.tokenizer.tokens):
            raise RefusedError("TOKENS_FOREIGN")

    def _answer(self, entry: str, body: Vector) -> Fragment:
        for part in body["parts"]:
            if "tool_call" in part:
                self.calls[part["tool_call"]["call_id"]] = self.asked[body["request"]]
        for number, part in enumerate(body["parts"]):
            self._drop_opaque(part, entry, number)
        ids = body["token_ids"]
        if body["parts"] and not ids:
            raise RefusedError("TOKENS_FOREIGN")
        self._known(ids)
        if self.reading == "again":
            ids = self.tokenizer.encode("".join(part.get("text", "") for part in body["parts"]))
        follows = self.last_is_final and "request" in ((self.last or {})["body"] or {})
        if self.reading == "answers-apart":
            follows = follows and (self.last or {})["id"] == body["request"]
        return Fragment(entry, None if follows else "assistant", list(ids), recorded=True)

    def _drop_opaque(self, part: Vector, entry: str, number: int) -> None:
        """Drop the opaque parts of an answer; its other parts are those of its tokens."""
        for inner in part.get("tool_result", {}).get("parts", ()):
            self._drop_opaque(inner, entry, number)
        if "opaque" in part:
            if part["opaque"]["need"] not in (PREFERRED, DROPPABLE):
                raise RefusedError("OPAQUE_REQUIRED")
            self.projections.append([entry, number, DROPPED])

    # --- calls ------------------------------------------------------------------------------

    def _follow(
        self, author: str, parts: list[Vector], opener: tuple[str, str] | None, owners: list[str]
    ) -> set[int]:
        """Open the calls of a message, for those who asked; return results that close none."""
        numbered = list(enumerate(parts))
        if self.reading == "results-first":
            numbered.sort(key=lambda each: "tool_call" in each[1])
        foreign = set()
        for number, part in numbered:
            if "tool_call" in part and opener is not None:
                self.calls[part["tool_call"]["call_id"]] = opener
            result = part.get("tool_result", {})
            if result.get("call_id") in self.calls and self.reading != "foreign":
                requester, executor = self.calls[result["call_id"]]
                gives_up = result["is_error"] and author in (requester, *owners)
                if author != executor and not gives_up:
                    foreign.add(number)
        return foreign

    # --- literals ---------------------------------------------------------------------------

    def tokens(self) -> list[list[int]]:
        """Return the tokens of each entry, literals included."""
        openings = [f for f in self.fragments if f.opens is not None]
        turns = [f.opens for f in openings if f.opens is not None]
        texts = self.template.literals(turns, header=False)
        for number, one in enumerate(openings):
            is_last = one is self.fragments[-1]
            if one.asked and number and (is_last or self.reading != "rewrites"):
                texts[number] = self._header(turns[:number])
        literals, found, last_id = iter(texts), [], None
        for one in self.fragments:
            ids = list(one.ids or [])
            if one.opens is not None:
                opening = next(literals)
                spaced = one.spaced if self.reading != "spaces-apart" else None
                if opening.endswith(" ") and spaced is not None:
                    opening, ids = opening[:-1], list(spaced)
                literal = self.tokenizer.encode_literal(opening)
                closed = literal[:1] == [last_id] and self.reading != "twice"
                ids = literal[closed:] + ids
                last_id = None
            if one.recorded and one.ids:
                last_id = one.ids[-1]
            found.append(ids)
        return found

    def _header(self, turns: list[str]) -> str:
        if self.reading == "headers-run":
            return self.template.literals(turns, header=True)[-1]
        return self.template.header(turns)


def _definition(tool: Vector) -> str:
    name, description = (
        json.dumps(tool[key], ensure_ascii=False) for key in ("name", "description")
    )
    return (
        f'{{"type": "function", "function": {{"name": {name}, "description": {description}, '
        f'"parameters": {tool["parameters_json"] or "{}"}}}}}'
    )


def render(
    tokenizer: Tokenizer, template: Template, seals: list[Vector], reading: str = ""
) -> tuple[list[list[int]], list[list[object]]]:
    """Return the tokens of each entry, and the projections. Raises RefusedError."""
    rendering = Rendering(tokenizer, template, reading)
    try:
        for seal in seals:
            for number, entry in enumerate(seal["entries"], 1):
                rendering.add(entry, seal["owners"], seal["entries"][number:])
        return rendering.tokens(), rendering.projections
    except BytesMissingError as error:
        raise RefusedError("TOKENIZER_BYTES_MISSING") from error


def digests(
    tokenizer: Tokenizer,
    template: Template,
    tokens: list[tuple[str, list[int]]],
    *,
    order: str = "<",
    recipe: bytes = RECIPE_DIGEST,
) -> list[bytes]:
    """Return the render digest of no entries, and that after each."""
    seed = tokenizer.digest + template.digest + recipe
    chain = [sha256(pae("antiphon/v1/render", seed))]
    for entry, ids in tokens:
        packed = struct.pack(f"{order}{1 + len(ids)}I", len(ids), *ids)
        chain.append(sha256(chain[-1] + bytes.fromhex(entry) + packed))
    return chain
