"""The formats in which models see tools and write calls (spec/07-host §8). Pure.

A template is asked once, at load, how it writes a call; that decides the format. A template
without calls of its own gets the format `hermes`, which instruction-tuned models follow
from its description alone. The texts are part of the rendering recipe, and so of its digest.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from model_host.refusals import TemplateUnsupported
from model_host.rendering.template import Template
from replica.ids import Digest, tagged_sha256
from replica.log import ToolDefinition


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of content: a literal of the format, or plain text."""

    text: str
    is_literal: bool = False


@dataclass(frozen=True, slots=True)
class CallText:
    """A call as a model wrote it."""

    name: str
    arguments_json: str


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One format: the texts around definitions, calls and results.

    Without `call_begins`, an answer that begins with a brace is one call.
    """

    name: str
    heading: str
    between: str
    closing: str
    call_begins: str
    call_ends: str
    arguments_key: str
    result_begins: str
    result_ends: str

    def section(self, tools: Sequence[ToolDefinition], *, replaces: bool) -> list[Piece]:
        """Return the text that offers `tools`; it `replaces` an earlier one if there is one."""
        if not tools:
            return [Piece(NO_TOOLS, is_literal=True)] if replaces else []
        pieces = [Piece(REPLACING, is_literal=True)] if replaces else []
        pieces.append(Piece(self.heading, is_literal=True))
        for number, tool in enumerate(tools):
            if number:
                pieces.append(Piece(self.between, is_literal=True))
            pieces.append(Piece(definition(tool)))
        return [*pieces, Piece(self.closing, is_literal=True)]

    def call(self, name: str, arguments_json: str) -> list[Piece]:
        """Return the text of one call, for calls that the model did not write itself."""
        head, tail = self.around_arguments(name)
        body = Piece(head + (arguments_json or "{}") + tail)
        marks = (Piece(self.call_begins, is_literal=True), Piece(self.call_ends, is_literal=True))
        return [piece for piece in (marks[0], body, marks[1]) if piece.text]

    def around_arguments(self, name: str) -> tuple[str, str]:
        """Return the text of a call before and behind its arguments, without marks."""
        return f'{{"name": {_string(name)}, "{self.arguments_key}": ', "}"

    def read_call(self, text: str) -> CallText | None:
        """Read the text of one call, without its marks; None where it is none."""
        found = _CALL.match(text)
        if found is None or found[2] != self.arguments_key or _is_deep(text, found.end()):
            return None
        try:
            name, start = json.loads(found[1]), found.end()
            name.encode()  # no entry holds a lone surrogate
            arguments, end = _DECODER.raw_decode(text, start)
        except ValueError:
            return None
        is_whole = text[end:].strip(WHITE_SPACE) == "}"
        return CallText(name, text[start:end]) if is_whole and isinstance(arguments, dict) else None


WHITE_SPACE = " \t\n\r"
"""The white space of JSON; any other is text."""


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _is_deep(text: str, start: int) -> bool:
    """Say whether containers of JSON are nested beyond DEPTH_MAX from an offset on.

    Up to the first error in the JSON the count is right, and no reader goes on behind it.
    """
    depth = 0
    for token in _BRACKET.finditer(text, start):
        depth += _DEPTHS.get(token[0], 0)
        if depth > DEPTH_MAX:
            return True
    return False


DEPTH_MAX = 64
"""Nested containers in the arguments of a call; a deeper text is no call.

Without a bound the interpreter's limit would count, and with it the callers of the reader: the
replay of an answer would find another call than the answer has.
"""
_DEPTHS = {"{": 1, "[": 1, "}": -1, "]": -1}
_BRACKET = re.compile(r'"(?s:[^"\\]|\\.)*+"?|[\[\]{}]')
# Numbers stay text: int() has a limit of digits, which the environment may change.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)
_CALL = re.compile(
    r"""
    _ \{ _ "name" _ : _ ( "(?:[^"\\]|\\.)*" ) _ , _ "([a-z]+)" _ : _
    """.replace("_", f"[{WHITE_SPACE}]*"),
    re.VERBOSE,
)


def definition(tool: ToolDefinition) -> str:
    """Return a definition as JSON; its parameters as they are written in the log."""
    return (
        f'{{"type": "function", "function": {{"name": {_string(tool.name)}, '
        f'"description": {_string(tool.description)}, '
        f'"parameters": {tool.parameters_json or "{}"}}}}}'
    )


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


REPLACING = "From now on, these functions replace all earlier ones.\n\n"
NO_TOOLS = "From now on, there are no functions."

HERMES = ToolFormat(
    name="hermes",
    heading=(
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
    ),
    between="\n",
    closing=(
        "\n</tools>\n\nFor each function call, return a json object with function name and "
        "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    ),
    call_begins="<tool_call>\n",
    call_ends="\n</tool_call>",
    arguments_key="arguments",
    result_begins="<tool_response>\n",
    result_ends="\n</tool_response>",
)
LLAMA3 = ToolFormat(
    name="llama3",
    heading=(
        "You have access to the following functions. To call a function, please respond with "
        'JSON for a function call.Respond in the format {"name": function name, "parameters": '
        "dictionary of argument name and its value}.Do not use variables.\n\n"
    ),
    between="\n\n",
    closing="\n\n",
    call_begins="",
    call_ends="",
    arguments_key="parameters",
    result_begins="",
    result_ends="",
)
FORMATS = (HERMES, LLAMA3)
FORMATS_DIGEST: Digest = tagged_sha256(
    b"antiphon/v1/tool-formats",
    json.dumps([*map(astuple, FORMATS), REPLACING, NO_TOOLS], ensure_ascii=True).encode(),
)


def format_of(template: Template) -> ToolFormat:
    """Return the format in which a template writes calls; hermes if it writes none."""
    function = {"name": "probe", "arguments": {"key": "value"}}
    try:
        text = template.render_messages(
            [
                {"role": "user", "content": "probe"},
                {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]},
            ],
            header=False,
        )
    except TemplateUnsupported:
        return HERMES
    for known in FORMATS:
        pieces = known.call("probe", '{"key": "value"}')
        if "".join(piece.text for piece in pieces) in text:
            return known
    return HERMES
