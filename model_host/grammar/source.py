"""The grammar of an answer: a request's form, or calls of the tools in effect (spec/07-host §9).

Pure. A source is text for the engine; nothing is compiled here.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llguidance import LLMatcher

from model_host.grammar.schema_check import WrittenFloat, check_schema
from model_host.refusals import GrammarInvalid, ToolChoiceInvalid
from model_host.rendering import ToolFormat
from replica.ids import Digest, tagged_sha256
from replica.limits import BODY_BYTES_MAX
from replica.log import FormatKind, Request, ResponseFormat, ToolChoice, ToolDefinition

JSON_OPTIONS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One spelling of white space: a model that may always add some need never end."""


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """A grammar in the engine's own form."""

    text: str
    tools: tuple[str, ...] = ()
    """The tools whose arguments its grammars describe, `args_0` and those behind it."""

    def explained(self, problem: str) -> str:
        """Return a problem that begins with the name of such a grammar with that of its tool."""
        for number, tool in enumerate(self.tools):
            name = f"args_{number}: "
            if problem.startswith(name):
                return f"tool {tool!r}: {problem.removeprefix(name)}"
        return problem

    @property
    def digest(self) -> Digest:
        """The digest recorded in the answer."""
        return tagged_sha256(b"antiphon/v1/grammar", self.text.encode())


def may_call(request: Request, tools: Sequence[ToolDefinition]) -> bool:
    """Say whether the answer to a request may call tools."""
    free = request.response_format is None and request.tool_choice != ToolChoice.NONE
    return bool(tools) and free


def source_for(
    request: Request, tools: Sequence[ToolDefinition], known: ToolFormat
) -> GrammarSource | None:
    """Return the grammar of the answer to a request; None where it is free text.

    `tools` are those in effect. Raises GrammarInvalid, ToolChoiceInvalid.
    """
    _check_choice(request, tools)
    if request.response_format is not None:
        return _source([_of_format(request.response_format)])
    if not tools or (request.tool_choice == ToolChoice.NONE and not known.call_begins):
        return None
    if request.tool_choice == ToolChoice.NONE:
        return _source([_lark("answer", _without(known))])
    if request.tool_choice == ToolChoice.NAMED:
        tools = [tool for tool in tools if tool.name == request.tool_name]
    last = {tool.name: tool for tool in tools}  # of two tools of one name
    source = _source(_calls([*last.values()], known, request.tool_choice))
    return replace(source, tools=tuple(last))


def _check_choice(request: Request, tools: Sequence[ToolDefinition]) -> None:
    if request.tool_choice not in set(ToolChoice):
        raise ToolChoiceInvalid(f"choice {request.tool_choice} is not defined")
    if (request.tool_choice == ToolChoice.NAMED) != bool(request.tool_name):
        raise ToolChoiceInvalid("a tool is named exactly where the choice is NAMED")
    if request.tool_choice not in (ToolChoice.REQUIRED, ToolChoice.NAMED):
        return
    if request.response_format is not None:
        raise ToolChoiceInvalid("an answer has a form of its own, or calls tools")
    if not tools:
        raise ToolChoiceInvalid("no tools are in effect")
    if request.tool_name and request.tool_name not in {tool.name for tool in tools}:
        raise ToolChoiceInvalid(f"no tool in effect is named {request.tool_name!r}")


def _source(grammars: list[dict[str, Any]]) -> GrammarSource:
    try:
        text = json.dumps({"grammars": grammars}, ensure_ascii=True, separators=(",", ":"))
    except RecursionError as error:  # it was read: writing it needs more depth
        raise GrammarInvalid(f"a schema is nested too deeply: {error}") from error
    if len(text) > BODY_BYTES_MAX:
        raise GrammarInvalid(f"the grammar has {len(text)} bytes, at most {BODY_BYTES_MAX}")
    return GrammarSource(text)


def _of_format(wanted: ResponseFormat) -> dict[str, Any]:
    match wanted.kind:
        case FormatKind.JSON_SCHEMA:
            return _json("answer", _schema(wanted.text))
        case FormatKind.REGEX:
            found = json.loads(LLMatcher.grammar_from_regex(wanted.text))["grammars"][0]
            return _lark("answer", found["lark_grammar"])
        case FormatKind.LARK:
            return _lark("answer", wanted.text)


def _lark(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "lark_grammar": text}


def _json(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "json_schema": {**schema, "x-guidance": JSON_OPTIONS}}


def _schema(text: str) -> dict[str, Any]:
    """Return a JSON Schema that the engine applies as it is. Raises GrammarInvalid."""
    try:
        schema = json.loads(text, parse_constant=_refuse_constant, parse_float=WrittenFloat)
    except (ValueError, RecursionError) as error:
        raise GrammarInvalid(f"the schema is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise GrammarInvalid("the schema is not a JSON object")
    check_schema(schema)
    return schema


def _schema_of_arguments(text: str) -> dict[str, Any]:
    """Return the schema of a tool's arguments, which are always an object.

    Without the type another value would obey it, and the text of the call would be none.
    The engine applies a type beside $ref, allOf, anyOf and oneOf too. Raises GrammarInvalid.
    """
    schema = _schema(text or "{}")
    stated = schema.get("type", "object")
    if stated != "object" and not (isinstance(stated, list) and "object" in stated):
        raise GrammarInvalid(f"arguments are an object, and the schema's type is {stated!r}")
    return {**schema, "type": "object"}


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


# --- calls --------------------------------------------------------------------------------

_ANY_TEXT = r"/(.|\n)*/"


def _calls(tools: Sequence[ToolDefinition], known: ToolFormat, choice: int) -> list[dict[str, Any]]:
    """Return the grammar of calls, or with AUTO of text that may hold calls."""
    rules = _marked(known, choice) if known.call_begins else _bare(choice)
    names = [f"call_{number}" for number in range(len(tools))]
    rules.append(f"call: {' | '.join(names)}")
    grammars = []
    for number, tool in enumerate(tools):
        head, tail = known.around_arguments(tool.name)
        rules.append(f"call_{number}: {_quote(head)} @args_{number} {_quote(tail)}")
        try:
            arguments = _schema_of_arguments(tool.parameters_json)
        except GrammarInvalid as error:
            raise GrammarInvalid(f"tool {tool.name!r}: {error.detail}") from error
        grammars.append(_json(f"args_{number}", arguments))
    return [_lark("calls", "\n".join(rules)), *grammars]


def _marked(known: ToolFormat, choice: int) -> list[str]:
    begins, ends = _quote(known.call_begins), _quote(known.call_ends)
    match choice:
        case ToolChoice.NAMED:
            return [f"start: {begins} call {ends}"]
        case ToolChoice.REQUIRED:
            return [r'start: one ("\n" one)*', f"one: {begins} call {ends}"]
        case _:
            mark = known.call_begins.strip()
            after = _quote(known.call_begins.removeprefix(mark))
            return [
                f"start: (trigger {after} call {ends})* tail",
                "tail: TEXT",
                f"TEXT: {_ANY_TEXT}",
                f"trigger[lazy]: TEXT {_quote(mark)}",
            ]


def _bare(choice: int) -> list[str]:
    if choice == ToolChoice.AUTO:
        return ["start: text | call", "text: TEXT", r"TEXT: /(\s*[^{\s](.|\n)*)?/"]
    return ["start: call"]


def _without(known: ToolFormat) -> str:
    """Return the grammar of text in which no call begins."""
    mark = known.call_begins.strip()
    return f"start: TEXT\nTEXT: {_ANY_TEXT} & ~ /(.|\\n)*{_escaped(mark)}(.|\\n)*/"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=True)


def _escaped(text: str) -> str:
    return "".join(c if c.isalnum() or c in "_<>" else f"\\{c}" for c in text)
