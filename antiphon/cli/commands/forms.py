"""Options of `antiphon send` for the form of an answer, and for tools.

A form is a JSON Schema, a regular expression or a Lark grammar (spec/07-host §9).
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from replica.limits import GRAMMAR_BYTES_MAX
from replica.log import FormatKind, ResponseFormat, ToolChoice, ToolDefinition, Tools, read_back
from replica.refusals import ArgumentInvalid, BodyMalformed, BodyTooLarge

PANEL = "Form and tools"
TOOLS_BYTES_MAX = 256 * 1024

SchemaOption = Annotated[
    Path | None,
    typer.Option(
        "--json-schema", metavar="FILE", help="The answer obeys this schema.", rich_help_panel=PANEL
    ),
]
RegexOption = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="The whole answer matches.", rich_help_panel=PANEL),
]
LarkOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The answer obeys this grammar.", rich_help_panel=PANEL),
]
ToolsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Offer tools from here on: a JSON list of name, description, parameters.",
        rich_help_panel=PANEL,
    ),
]
ChoiceOption = Annotated[
    str | None,
    typer.Option(
        "--tool-choice",
        metavar="auto|none|required|NAME",
        help="Whether to call tools; default: auto.",
        rich_help_panel=PANEL,
    ),
]
ResultOption = Annotated[
    str | None,
    typer.Option(
        "--result", metavar="CALL", help="TEXT is the result of this call.", rich_help_panel=PANEL
    ),
]


def form_of(schema: Path | None, regex: str | None, lark: Path | None) -> ResponseFormat | None:
    """Return the form that the options ask for. Raises ArgumentInvalid."""
    if sum(option is not None for option in (schema, regex, lark)) > 1:
        raise ArgumentInvalid("give one of --json-schema, --regex and --lark")
    if schema is not None:
        text = _read(schema, GRAMMAR_BYTES_MAX)
        _parse(text, schema)
        return ResponseFormat(FormatKind.JSON_SCHEMA, text)
    if lark is not None:
        return ResponseFormat(FormatKind.LARK, _read(lark, GRAMMAR_BYTES_MAX))
    if regex is None:
        return None
    if not 1 <= len(regex.encode()) <= GRAMMAR_BYTES_MAX:
        raise ArgumentInvalid(f"--regex has 1 to {GRAMMAR_BYTES_MAX:,} bytes")
    return ResponseFormat(FormatKind.REGEX, regex)


def choice_of(text: str | None) -> tuple[ToolChoice, str]:
    """Return the choice of tools, and the name of the tool where it names one."""
    word = (text or "auto").upper()
    if word in ToolChoice.__members__ and word != ToolChoice.NAMED.name:
        return ToolChoice[word], ""
    return ToolChoice.NAMED, text or ""


def tools_of(path: Path | None) -> Tools | None:
    """Return the tools that a file defines. Raises ArgumentInvalid."""
    if path is None:
        return None
    found = _parse(_read(path, TOOLS_BYTES_MAX), path)
    if not isinstance(found, list):
        raise ArgumentInvalid(f"{path}: a JSON list of tools")
    tools = Tools(tuple(_definition(tool, path) for tool in found))
    try:
        read_back(tools)
    except (BodyMalformed, BodyTooLarge) as error:
        raise ArgumentInvalid(f"{path}: {len(found):,} tools: {error.detail}") from error
    return tools


def _definition(tool: Any, path: Path) -> ToolDefinition:
    """Return one definition, plain or as chat templates write it."""
    inner = tool.get("function", tool) if isinstance(tool, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(name, str) or not name:
        raise ArgumentInvalid(f"{path}: each tool is an object with a name")
    description, parameters = inner.get("description", ""), inner.get("parameters", {})
    if not isinstance(description, str) or not isinstance(parameters, dict):
        raise ArgumentInvalid(f"{path}: {name} has a text as description, a schema as parameters")
    return ToolDefinition(name, description, json.dumps(parameters, ensure_ascii=False))


def _read(path: Path, bytes_max: int) -> str:
    try:
        data = path.expanduser().read_bytes()
        text = data.decode()
    except OSError as error:
        raise ArgumentInvalid(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ArgumentInvalid(f"{path}: not a text in UTF-8") from error
    if not 1 <= len(data) <= bytes_max:
        raise ArgumentInvalid(f"{path}: 1 to {bytes_max:,} bytes")
    return text


def _parse(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentInvalid(f"{path}: not JSON: {error}") from error
