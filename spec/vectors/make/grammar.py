"""grammar.json: a response format, or a choice of tools → the text of the grammar (07 §9)."""

import json
from typing import Any

from spec.vectors.make.build import pae, sha256

Vector = dict[str, Any]

AUTO, NONE, REQUIRED, NAMED = range(4)
WHITE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
ANY = r"/(.|\n)*/"
KEYS = {"hermes": "arguments", "llama3": "parameters"}


def _tool(name: str, parameters: str = "") -> Vector:
    return {"name": name, "parameters_json": parameters}


ADD = _tool("add", '{"properties": {"a": {"type": "integer"}}, "required": ["a"]}')
NOW = _tool("now")
NULL = _tool("f", '{"type": ["null", "object"], "properties": {}}')
NUMBERS = '{"enum": [1e2, 1e15, 1e-7, 0.0001, 0.10, -0, -0.0, 5.0, 7], "examples": [1E16, 5e-324]}'
TWICE = '{"type": "string", "title": "a", "type": "object"}'
ESCAPED = r'{"const": "\u007f\b\f\u001f\/\u00E9\ud83e\udd8a\u2028"}'
RULES = (
    'The text is JSON without white space. In a string `"` and `\\` have a backslash before them;'
    " U+0008, 9, A, C and D are \\b, \\t, \\n, \\f and \\r; all others below U+0020 and from U+007F"
    " on are \\u and four lowercase hex digits, or two of these.",
    "A schema keeps the order of its keys: one that occurs twice has its first place and its last"
    " value. `x-guidance` comes last. A schema of arguments has the type `object`, in the place of"
    " the type it states, else last but for `x-guidance`.",
    "A number without point and exponent is an integer, of which -0 is 0. Any other is the shortest"
    " that reads as the same float64: from 1e-4 on and below 1e16 with a point and a digit on both"
    " sides (`100.0`), else with an exponent of a sign, of which + is written, and two digits at"
    " least (`1e+16`, `1.5e-07`). Zero is `0.0` or `-0.0`.",
    "In a regular expression a slash that no backslash escapes gets one; a line feed, a carriage"
    " return and a tab are \\n, \\r and \\t.",
)


def _quoted(text: str) -> str:
    return json.dumps(text)


def _json(name: str, schema: Vector) -> Vector:
    return {"name": name, "json_schema": schema | {"x-guidance": WHITE}}


def _lark(name: str, *rules: str) -> Vector:
    return {"name": name, "lark_grammar": "\n".join(rules)}


def _calls(form: str, tools: list[Vector], *rules: str) -> list[Vector]:
    """Return the grammar that begins with `rules` and has one rule per tool."""
    alternatives = " | ".join(f"call_{number}" for number in range(len(tools)))
    calls, schemas = [f"call: {alternatives}"], []
    for number, tool in enumerate(tools):
        name = json.dumps(tool["name"], ensure_ascii=False)
        head = f'{{"name": {name}, "{KEYS[form]}": '
        calls.append(f"call_{number}: {_quoted(head)} @args_{number} {_quoted('}')}")
        schema = json.loads(tool["parameters_json"] or "{}")
        schemas.append(_json(f"args_{number}", schema | {"type": "object"}))
    return [_lark("calls", *rules, *calls), *schemas]


def _vector(
    name: str,
    comment: str,
    grammars: list[Vector] | None,
    *,
    form: str = "hermes",
    tools: list[Vector] | None = None,
    choice: int = AUTO,
    named: str = "",
    wanted: Vector | None = None,
    reason: str | None = None,
) -> Vector:
    text = json.dumps({"grammars": grammars}, separators=(",", ":")) if grammars else None
    return {
        "name": name,
        "comment": comment,
        "format": form,
        "tools": tools or [],
        "tool_choice": choice,
        "tool_name": named,
        "response_format": wanted,
        "text": text,
        "digest": sha256(pae("antiphon/v1/grammar", text.encode())).hex() if text else None,
        "reason": reason,
    }


def _formats() -> list[Vector]:
    schema = '{"type": "object", "properties": {"é": {"type": "string"}}}'
    return [
        _vector("free", "no form and no tools", None),
        _vector("schema", "a JSON Schema, with its own order of keys",
                [_json("answer", json.loads(schema))], wanted={"json_schema": schema}),
        _vector("regex", "a regular expression; a slash in it is escaped",
                [_lark("answer", r"start: /[a-f]{2}\/x/")], wanted={"regex": "[a-f]{2}/x"}),
        _vector("regex-escaped", "a slash that is escaped already; line ends and a tab",
                [_lark("answer", r"start: /a\/b\\\/[\/]\n\r\t/")],
                wanted={"regex": "a\\/b\\\\/[/]\n\r\t"}),
        _vector("schema-numbers", "numbers with a point or an exponent are float64",
                [_json("answer", json.loads(NUMBERS))], wanted={"json_schema": NUMBERS}),
        _vector("schema-twice", "of a key that occurs twice the first place and the last value",
                [_json("answer", json.loads(TWICE))], wanted={"json_schema": TWICE}),
        _vector("schema-escaped", "characters, escaped and not",
                [_json("answer", json.loads(ESCAPED))], wanted={"json_schema": ESCAPED}),
        _vector("lark", "a grammar as it is written", [_lark("answer", 'start: "a" | "b"\n')],
                wanted={"lark": 'start: "a" | "b"\n'}),
        _vector("schema-with-tools", "a form comes before tools",
                [_json("answer", {})], wanted={"json_schema": "{}"}, tools=[ADD]),
    ]  # fmt: skip


def _choices() -> list[Vector]:
    one = r'"<tool_call>\n" call "\n</tool_call>"'
    auto = (
        r'start: (trigger "\n" call "\n</tool_call>")* tail', "tail: TEXT", f"TEXT: {ANY}",
        'trigger[lazy]: TEXT "<tool_call>"',
    )  # fmt: skip
    several = (r'start: one ("\n" one)*', f"one: {one}")
    bare = ("start: text | call", "text: TEXT", r"TEXT: /(\s*[^{\s](.|\n)*)?/")
    none = (r"start: TEXT", f"TEXT: {ANY} & ~ /(.|\\n)*<tool_call>(.|\\n)*/")
    odd = _tool('say "é"')
    return [
        _vector("auto", "text, with calls that are right from their mark on",
                _calls("hermes", [ADD], *auto), tools=[ADD]),
        _vector("auto-two", "two tools, the second without parameters",
                _calls("hermes", [ADD, NOW], *auto), tools=[ADD, NOW]),
        _vector("auto-again", "of two tools of one name the later one, in the place of the first",
                _calls("hermes", [ADD, NOW], *auto), tools=[_tool("add"), NOW, ADD]),
        _vector("auto-odd", "a name with quotation marks and a letter beyond ASCII",
                _calls("hermes", [odd], *auto), tools=[odd]),
        _vector("auto-type", "a type that is a list, in its place",
                _calls("hermes", [NULL], *auto), tools=[NULL]),
        _vector("required", "calls alone, with a line feed between them",
                _calls("hermes", [ADD], *several), tools=[ADD], choice=REQUIRED),
        _vector("named", "one call", _calls("hermes", [NOW], f"start: {one}"),
                tools=[ADD, NOW], choice=NAMED, named="now"),
        _vector("none", "text without the mark of a call", [_lark("answer", *none)], tools=[ADD],
                choice=NONE),
        _vector("none-bare", "where calls have no marks, any text", None, form="llama3",
                tools=[ADD], choice=NONE),
        _vector("auto-bare", "text that begins with no brace, or a call",
                _calls("llama3", [ADD], *bare), form="llama3", tools=[ADD]),
        _vector("required-bare", "one call", _calls("llama3", [ADD], "start: call"),
                form="llama3", tools=[ADD], choice=REQUIRED),
    ]  # fmt: skip


def _refused() -> list[Vector]:
    choice, invalid = "TOOL_CHOICE_INVALID", "GRAMMAR_INVALID"
    array = _tool("f", '{"type": "array"}')
    return [
        _vector("choice-undefined", "choice 4", None, tools=[ADD], choice=4, reason=choice),
        _vector("required-alone", "calls without tools", None, choice=REQUIRED, reason=choice),
        _vector("named-alone", "a choice without a name", None, tools=[ADD], choice=NAMED,
                reason=choice),
        _vector("name-alone", "a name without its choice", None, tools=[ADD], named="add",
                reason=choice),
        _vector("named-unknown", "a tool that is not in effect", None, tools=[ADD], choice=NAMED,
                named="now", reason=choice),
        _vector("required-schema", "calls beside a form", None, tools=[ADD], choice=REQUIRED,
                wanted={"json_schema": "{}"}, reason=choice),
        _vector("arguments-array", "arguments that are no object", None, tools=[array],
                reason=invalid),
        _vector("schema-no-object", "a schema that is no object", None,
                wanted={"json_schema": "true"}, reason=invalid),
        _vector("schema-unknown", "a keyword that nobody knows", None,
                wanted={"json_schema": '{"typo": 1}'}, reason=invalid),
    ]  # fmt: skip


def build() -> Vector:
    """Return the file."""
    return {
        "file": "grammar",
        "spec": "spec/07-host §9",
        "comment": "The `response_format`, or the `tool_choice` with the `tools` in effect and the"
        " `format` of their calls → the `text` of the grammar for the engine llguidance, and its"
        " `digest`; null where the answer is free. `reason` not null: the request is refused.",
        "rules": list(RULES),
        "vectors": [*_formats(), *_choices(), *_refused()],
    }
