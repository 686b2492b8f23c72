"""The arguments of a call, against the schema of the tool's parameters (DECISIONS D598). Pure.

Of JSON Schema it knows what `tool` writes: `type`, `enum`, `anyOf`, `items`, `properties` and
`additionalProperties`. What else a schema of the program's own has is passed over. Missing and
unknown names are left to the function, which refuses them itself.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

_SHOWN_MAX = 80
"""Characters of a wrong value that are repeated to the model."""
_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "a text"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
    "array": ((list,), "a list"),
    "object": ((dict,), "an object"),
    "null": ((type(None),), "null"),
}


def wrong_argument(schema_json: str, arguments: Mapping[str, Any]) -> str | None:
    """Return what is wrong about the first argument that its schema excludes; None if none is."""
    try:
        schema = json.loads(schema_json)
    except (ValueError, RecursionError):
        return None
    found = next(_faults(schema, arguments, ()), None)
    if found is None:
        return None
    (name, *inner), value, expected = found
    path = f"'{name}'" + "".join(f"[{json.dumps(one, ensure_ascii=False)}]" for one in inner)
    return f"{path} is {_shown(value)}, and not {expected}"


def _shown(value: Any) -> str:
    try:
        shown = json.dumps(value, ensure_ascii=False)
    except RecursionError:  # nested as deep as it can be read
        shown = type(value).__name__
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}…"


_Path = tuple[str | int, ...]
_Fault = tuple[_Path, Any, str]
"""The path of a value, the value, and what is expected there."""


def _faults(schema: Any, value: Any, path: _Path) -> Iterator[_Fault]:
    if not isinstance(schema, dict):
        return
    if path and not _is_of_kind(schema, value):
        yield path, value, _expected(schema)
        return
    choices = schema.get("anyOf")
    if isinstance(choices, list) and choices:
        yield from _faults_of_all(choices, value, path)
    for inner, key in _inside(schema, value):
        yield from _faults(inner, value[key], (*path, key))


def _faults_of_all(choices: list[Any], value: Any, path: _Path) -> Iterator[_Fault]:
    """Yield a fault if no choice holds: one inside the value, where a choice is of its kind."""
    faults = [next(_faults(one, value, path), None) for one in choices]
    found = [one for one in faults if one is not None]
    if len(found) == len(faults):
        deeper = [one for one in found if one[0] != path]
        expected = _expected({"anyOf": choices})
        yield deeper[0] if deeper else (path, value, expected)


def _inside(schema: dict[str, Any], value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the schemas of what a value holds, with where it holds it."""
    if isinstance(value, list) and "prefixItems" not in schema:
        yield from ((schema.get("items"), index) for index in range(len(value)))
    if isinstance(value, dict):
        known = schema.get("properties")
        known = known if isinstance(known, dict) else {}
        others = None if "patternProperties" in schema else schema.get("additionalProperties")
        for name in value:
            yield known.get(name, others), name


def _is_of_kind(schema: dict[str, Any], value: Any) -> bool:
    """Say whether a value is of a type that the schema states, and one of its constants."""
    kinds = _kinds(schema)
    if kinds and not any(_is_a(value, kind) for kind in kinds):
        return False
    constants = schema.get("enum")
    return not isinstance(constants, list) or any(_same(value, one) for one in constants)


def _kinds(schema: dict[str, Any]) -> list[str]:
    """Return the types that a schema states; none where one of them is not known here."""
    stated = schema.get("type")
    kinds = stated if isinstance(stated, list) else [stated]
    known = [kind for kind in kinds if isinstance(kind, str) and kind in _KINDS]
    return known if len(known) == len(kinds) else []


def _is_a(value: Any, kind: str) -> bool:
    types, _ = _KINDS[kind]
    return isinstance(value, types) and (kind == "boolean" or not isinstance(value, bool))


def _same(value: Any, constant: Any) -> bool:
    return isinstance(value, bool) == isinstance(constant, bool) and bool(value == constant)


def _expected(schema: Any) -> str:
    """Return what a schema wants, in words."""
    if not isinstance(schema, dict):
        return "something else"
    constants, choices = schema.get("enum"), schema.get("anyOf")
    if isinstance(constants, list):
        texts = [json.dumps(one, ensure_ascii=False) for one in constants]
        return texts[0] if len(texts) == 1 else f"one of {', '.join(texts)}"
    if isinstance(choices, list):
        return " or ".join(map(_expected, choices))
    return " or ".join(_KINDS[kind][1] for kind in _kinds(schema)) or "something else"
