"""The vectors of grammars, run against the code (spec/07-host §9)."""

import json
from typing import Any

import pytest
from llguidance import LLMatcher

from model_host.grammar import source_for
from model_host.refusals import GrammarInvalid, ToolChoiceInvalid
from model_host.rendering.tool_formats import FORMATS
from replica.ids import PublicKey
from replica.log import FormatKind, Request, ResponseFormat, Sampling, ToolDefinition
from spec.vectors.make.__main__ import FOLDER

Vector = dict[str, Any]

VECTORS = json.loads((FOLDER / "grammar.json").read_text())["vectors"]
KINDS = {
    "json_schema": FormatKind.JSON_SCHEMA,
    "regex": FormatKind.REGEX,
    "lark": FormatKind.LARK,
}


def _request(vector: Vector) -> Request:
    given = vector["response_format"]
    wanted = [ResponseFormat(KINDS[kind], text) for kind, text in (given or {}).items()]
    return Request(
        PublicKey(bytes(32)), Sampling(), response_format=wanted[0] if wanted else None,
        tool_choice=vector["tool_choice"], tool_name=vector["tool_name"],
    )  # fmt: skip


@pytest.mark.parametrize("vector", [pytest.param(v, id=v["name"]) for v in VECTORS])
def test_a_request_has_the_grammar_of_the_vector(vector: Vector) -> None:
    (known,) = (one for one in FORMATS if one.name == vector["format"])
    tools = [ToolDefinition(tool["name"], "", tool["parameters_json"]) for tool in vector["tools"]]
    refusals = {"TOOL_CHOICE_INVALID": ToolChoiceInvalid, "GRAMMAR_INVALID": GrammarInvalid}
    if vector["reason"]:
        with pytest.raises(refusals[vector["reason"]]):
            source_for(_request(vector), tools, known)
        return
    source = source_for(_request(vector), tools, known)
    found = (source.text, source.digest.hex()) if source is not None else (None, None)
    assert found == (vector["text"], vector["digest"])
    if source is not None:
        assert LLMatcher.validate_grammar(source.text) == ""
