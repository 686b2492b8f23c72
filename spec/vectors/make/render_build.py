"""Contexts of render.json: their entries, and a vector of what these render to."""

import struct
from itertools import accumulate, chain
from typing import Any

from spec.vectors.make import bpe
from spec.vectors.make.build import Key, sha256
from spec.vectors.make.misread import misread
from spec.vectors.make.rendering import READINGS, Vector, digests, render
from spec.vectors.make.templates import TEMPLATES, RefusedError

TOKENIZER = bpe.small()
ADA, BOB, CAT, HOST = (Key(name).public.hex() for name in ("ada", "bob", "cat", "host"))
STOP, LENGTH, TOOL_CALLS, CANCELLED, INTERRUPTED, CONTEXT_LIMIT, REFUSED = 1, 2, 3, 5, 6, 7, 8
SYSTEM, USER, ASSISTANT, TOOL = 1, 2, 3, 4
END = TOKENIZER.tokens.index("<|im_end|>")

Part = dict[str, Any]


def text(words: str) -> Part:
    """Return a text part."""
    return {"text": words}


def said(*words: str, speaker: int = USER) -> Vector:
    """Return a message of text parts."""
    return {"message": {"speaker": speaker, "parts": [text(one) for one in words]}}


def of(*parts: Part, speaker: int = USER) -> Vector:
    """Return a message of any parts."""
    return {"message": {"speaker": speaker, "parts": list(parts)}}


def asked(executor: str = "") -> Vector:
    """Return a request."""
    return {"request": {"executor": executor}}


def answer(
    words: str, finish: int = STOP, *, ids: list[int] | None = None, calls: tuple[Part, ...] = ()
) -> Vector:
    """Return an answer, whose tokens are those of its words unless given."""
    found = TOKENIZER.encode(words) if ids is None else ids
    ends = [END] if finish in (STOP, TOOL_CALLS) and ids is None else []
    parts = [*([text(words)] if words and not calls else []), *calls]
    return {"generation": {"token_ids": found + ends, "parts": parts, "finish_reason": finish}}


def call(number: int = 0) -> Part:
    """Return a call of the tool `add`."""
    arguments = '{"a": 1, "b": 2}'
    return {"tool_call": {"call_id": f"c{number}", "name": "add", "arguments_json": arguments}}


def result(*parts: Part, number: int = 0, is_error: bool = False) -> Part:
    """Return the result of a call."""
    return {"tool_result": {"call_id": f"c{number}", "parts": list(parts), "is_error": is_error}}


def tool(name: str, description: str = "", parameters: str = "") -> Vector:
    """Return a definition."""
    return {"name": name, "description": description, "parameters_json": parameters}


ADD = tool("add", 'Adds "a" and b', '{"type":"object"}')


def packed(ids: list[int]) -> str:
    """Return token ids as hex."""
    return struct.pack(f"<{len(ids)}I", *ids).hex()


Follows = dict[int, tuple[int, ...]]
"""Indices of the entries that an entry names as parents, where it names others than the last."""


def _seals(
    bodies: list[Vector | None],
    authors: dict[int, str],
    follows: Follows,
    last_of_seals: tuple[int, ...] = (),
) -> list[Vector]:
    """Return the lists of seals: up to each request with an answer, unless their last are given."""
    entries: list[Vector] = []
    last_asked = ""
    for number, given in enumerate(bodies):
        identifier = sha256(b"render entry %d" % number).hex()
        body, author = given, authors.get(number, ADA)
        if body is not None and "generation" in body:
            body = {"generation": {"request": last_asked} | body["generation"]}
            author = HOST
        if body is not None and "request" in body:
            last_asked = identifier
        before = [entries[i]["id"] for i in follows.get(number, range(number)[-1:])]
        entries.append({"id": identifier, "author": author, "parents": before, "body": body})
    seals: list[Vector] = [{"owners": [ADA], "entries": []}]
    for number, (entry, following) in enumerate(zip(entries, [*entries[1:], None], strict=True)):
        seals[-1]["entries"].append(entry)
        answered = following is not None and "generation" in (following["body"] or {})
        ends = answered and "request" in (entry["body"] or {})
        if number in last_of_seals if last_of_seals else ends:
            seals.append({"owners": [ADA], "entries": []})
    return seals


def vector(
    name: str,
    comment: str,
    bodies: list[Vector | None],
    *,
    template: str = "chatml",
    authors: dict[int, str] | None = None,
    follows: Follows | None = None,
    last_of_seals: tuple[int, ...] = (),
) -> Vector:
    """Return a vector: what the context of these bodies renders to."""
    seals = _seals(bodies, authors or {}, follows or {}, last_of_seals)
    given = {"name": name, "comment": comment, "template": template, "seals": seals}
    entries = [entry["id"] for seal in seals for entry in seal["entries"]]
    known = TEMPLATES[template]
    try:
        tokens, projections = render(TOKENIZER, known, seals)
    except RefusedError as error:
        nothing = {"tokens": None, "render_digests": None, "projections": None}
        return given | nothing | {"reason": str(error), "misread": {}}
    pairs = list(zip(entries, tokens, strict=True))
    found = [digest.hex() for digest in digests(TOKENIZER, known, pairs)]
    wrong = {
        "counts and ids big-endian": digests(TOKENIZER, known, pairs, order=">")[-1].hex(),
        "no digest of the recipe": digests(TOKENIZER, known, pairs, recipe=b"")[-1].hex(),
        "all tokens as those of one entry": digests(
            TOKENIZER, known, [(entries[-1], list(chain.from_iterable(tokens)))]
        )[-1].hex(),
    } | _misread(known, seals, entries, found[-1])
    ends = accumulate(len(seal["entries"]) for seal in seals)
    return given | {
        "tokens": [
            {"entry": entry, "text": TOKENIZER.shown(ids), "ids": packed(ids)}
            for entry, ids in pairs
        ],
        "render_digests": [found[end] for end in ends],
        "projections": projections,
        "reason": None,
        "misread": misread(found[-1], {n: w for n, w in wrong.items() if w != found[-1]}),
    }


def _misread(template: Any, seals: list[Vector], entries: list[str], right: str) -> dict[str, str]:
    """Return the last digest by each misreading that this vector tells from the right one."""
    found = {}
    for reading, words in READINGS.items():
        try:
            tokens, _ = render(TOKENIZER, template, seals, reading)
        except RefusedError:
            continue
        pairs = list(zip(entries, tokens, strict=True))
        digest = digests(TOKENIZER, template, pairs)[-1].hex()
        if digest != right:
            found[words] = digest
    return found
