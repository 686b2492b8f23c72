"""The vectors of rendering, run against the code."""

from functools import cache
from typing import Any

import pytest

from model_host.engine.model_file import TokenizerData
from model_host.engine.tokenizer import Tokenizer
from model_host.rendering import Template
from model_host.rendering.listing import ContextItem, Listing
from model_host.rendering.render import RECIPE, RECIPE_DIGEST, Renderer
from model_host.rendering.tool_formats import FORMATS_DIGEST
from replica.conversation.obligations import Asked
from replica.errors import HostError
from replica.ids import Digest, EntryId, PublicKey
from replica.log.body import (
    Body,
    FinishReason,
    Generation,
    Media,
    Message,
    Opaque,
    Part,
    Purpose,
    Request,
    Sampling,
    Text,
    Tokens,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Tools,
    ToolStarted,
)
from tests.vectors.plain import file_of, unhex, vectors_of

FILE = file_of("render")
Vector = dict[str, Any]


@cache
def _tokenizer() -> Tokenizer:
    raw = FILE["tokenizer"]
    tokens, types, merges = (tuple(raw[name]) for name in ("tokens", "types", "merges"))
    return Tokenizer.build(
        TokenizerData(raw["model"], raw["pre"], tokens, types, merges, None, None)
    )


def _template(raw: Vector) -> Template:
    return Template(raw["source"], bos_token=raw["bos_token"], eos_token=raw["eos_token"])


@cache
def _renderer(name: str) -> Renderer:
    return Renderer.load(_template(FILE["templates"][name]), _tokenizer())


def test_tokenizer_templates_and_recipe_have_the_digests_of_the_file() -> None:
    assert _tokenizer().digest.hex() == FILE["tokenizer"]["digest"]
    renderers = {name: _renderer(name) for name in FILE["templates"]}
    for name, raw in FILE["templates"].items():
        assert renderers[name].template.digest.hex() == raw["digest"]
        assert renderers[name].turns.format.name == raw["format"]
    assert FORMATS_DIGEST.hex() == FILE["formats"]["digest"]
    assert (RECIPE.hex(), RECIPE_DIGEST.hex()) == tuple(FILE["recipe"].values())
    assert {renderer.is_local for renderer in renderers.values()} == {True, False}


def test_tokens_have_the_bytes_of_the_file() -> None:
    tokenizer = _tokenizer()
    found = [tokenizer.token_bytes(token_id).hex() for token_id in range(tokenizer.token_count)]
    assert found == FILE["tokenizer"]["bytes"]


@pytest.mark.parametrize("vector", vectors_of("render"))
def test_a_context_renders_to_the_tokens_of_the_vector(vector: Vector) -> None:
    renderer, listings = _renderer(vector["template"]), _listings(vector["seals"])
    if vector["reason"] is not None:
        with pytest.raises(HostError) as refused:
            renderer.extend(renderer.empty, listings)
        assert refused.value.reason == vector["reason"]
        return
    whole = renderer.extend(renderer.empty, listings)
    expected = [(t["entry"], unhex(t["ids"])) for t in vector["tokens"]]
    packed = [(e.hex(), b"".join(i.to_bytes(4, "little") for i in ids)) for e, ids in whole.tokens]
    assert packed == expected
    assert [digest.hex() for digest in whole.digests] == vector["render_digests"]
    found = [[p.entry.hex(), p.part_index, int(p.outcome)] for p in whole.projections]
    assert found == vector["projections"]
    context = renderer.empty
    for listing, digest in zip(listings, vector["render_digests"], strict=True):
        context = renderer.extend(context, [listing]).context
        assert context.digest.hex() == digest


def _listings(seals: list[Vector]) -> list[Listing]:
    asked: dict[str, Asked] = {}
    return [
        Listing(
            tuple(
                _item(entry, asked, is_final=entry is seal["entries"][-1])
                for entry in seal["entries"]
            ),
            frozenset(PublicKey(unhex(owner)) for owner in seal["owners"]),
        )
        for seal in seals
    ]


def _item(entry: Vector, asked: dict[str, Asked], *, is_final: bool) -> ContextItem:
    author, body = PublicKey(unhex(entry["author"])), _body(entry["body"])
    if isinstance(body, Request):
        asked[entry["id"]] = Asked.of(author, body)
    request = ((entry["body"] or {}).get("generation") or {}).get("request")
    return ContextItem(
        EntryId(unhex(entry["id"])),
        body,
        is_final,
        tuple(EntryId(unhex(parent)) for parent in entry["parents"]),
        author,
        asked.get(request),
    )


def _body(raw: Vector | None) -> Body | None:
    match raw:
        case None:
            return None
        case {"message": message}:
            return Message(message["speaker"], _parts(message["parts"]))
        case {"tools": tools}:
            return Tools(tuple(ToolDefinition(**tool) for tool in tools))
        case {"request": request}:
            executor = PublicKey(unhex(request["executor"])) if request["executor"] else None
            return Request(PublicKey(bytes(32)), Sampling(), executor=executor)
        case {"generation": given}:
            ids, finish = tuple(given["token_ids"]), FinishReason(given["finish_reason"])
            return Generation(ids, _parts(given["parts"]), 0, finish)
    raise AssertionError(raw)


def _parts(raw: list[Vector]) -> tuple[Part, ...]:
    return tuple(map(_part, raw))


def _part(raw: Vector) -> Part:
    match raw:
        case {"text": text}:
            return Text(text)
        case {"tokens": tokens}:
            digest = Digest(unhex(tokens["tokenizer_digest"]))
            return Tokens(tuple(tokens["token_ids"]), digest)
        case {"tool_call": call}:
            return ToolCall(**call)
        case {"tool_started": started}:
            return ToolStarted(**started)
        case {"tool_result": result}:
            return ToolResult(result["call_id"], _parts(result["parts"]), result["is_error"])
        case {"opaque": opaque}:
            return _opaque(opaque)
        case {"media": _}:
            return _media()
    raise AssertionError(raw)


def _opaque(raw: Vector) -> Opaque:
    return Opaque(
        issuer=raw["issuer"],
        scope="",
        key_id="",
        dialect="",
        purpose=Purpose.REASONING,
        need=raw["need"],
        tokens=0,
        expire_time_ms=0,
        data=b"",
        fallback_text=raw["fallback_text"],
    )


def _media() -> Media:
    return Media(Digest(bytes(32)), 1, "image/png")
