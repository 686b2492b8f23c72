"""Whether the engine can apply a JSON Schema as it is written (spec/07-host §9, HOST-44). Pure.

The engine, llguidance 1.9.1, passes over a keyword that its draft does not know, and reads
numbers as float64. Both would change the schema without a word, so they are refused here. A
schema is walked without recursion: a member writes it.
"""

import re
from collections.abc import Iterable
from typing import Any, Self
from urllib.parse import unquote

from model_host.refusals import GrammarInvalid

_ONE_BELOW = frozenset({"additionalItems", "additionalProperties", "contentSchema", "items"})
"""Keywords whose value is a schema; one of content has no effect, but a reference may name it."""
_MANY_BELOW = frozenset(
    {
        "$defs",
        "allOf",
        "anyOf",
        "definitions",
        "items",
        "oneOf",
        "patternProperties",
        "prefixItems",
        "properties",
    }
)
"""Keywords whose value is a list of schemas, or has them by name; that of `items` may be one."""
_NUMERIC = frozenset(
    {"const", "enum", "exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"}
)
"""Keywords whose numbers decide which answers obey."""
APPLIED = (
    _ONE_BELOW
    | _MANY_BELOW
    | _NUMERIC
    | {
        "$ref",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "minItems",
        "minLength",
        "minProperties",
        "pattern",
        "required",
        "type",
    }
)
"""Keywords that the engine applies."""
WITHOUT_EFFECT = frozenset(
    {
        "$anchor",
        "$comment",
        "$id",
        "$schema",
        "$vocabulary",
        "contentEncoding",
        "contentMediaType",
        "default",
        "deprecated",
        "description",
        "discriminator",  # this and the next three are OpenAPI's
        "example",
        "externalDocs",
        "xml",
        "examples",
        "id",
        "readOnly",
        "title",
        "writeOnly",
    }
)
"""Keywords that say nothing of which values obey."""

INTEGER_MAX = 2**53 - 1
DIGITS_MAX = 15
"""Decimal digits that a float64 keeps, whatever they are."""
PLACES_MAX = 22
"""Decimal places up to which the engine reads the nearest float64: 10^22 is one itself."""
_SHOWN_MAX = 60
_NUMBER = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,5}))?")


class WrittenFloat(float):
    """A number with a point or an exponent, and the text that it was read from."""

    text: str

    def __new__(cls, text: str) -> Self:
        """Read the text of a JSON number."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def check_schema(schema: dict[str, Any]) -> None:
    """Check the keywords, references and numbers of a schema and all schemas in it.

    Its numbers are ints and WrittenFloats. Raises GrammarInvalid.
    """
    todo: list[Any] = [schema]
    while todo:
        at = todo.pop()
        if not isinstance(at, dict):
            continue  # true or false; the engine refuses any other value
        for keyword, value in at.items():
            if keyword not in APPLIED and keyword not in WITHOUT_EFFECT:
                raise GrammarInvalid(f"the keyword {_shown(keyword)} of a schema is not known here")
            if keyword in _NUMERIC:
                _check_numbers(keyword, value)
            if keyword == "$ref":
                _check_reference(value)
            todo += _schemas_below(keyword, value)


def _schemas_below(keyword: str, value: Any) -> Iterable[Any]:
    if keyword in _ONE_BELOW and isinstance(value, dict):
        return [value]
    if keyword not in _MANY_BELOW:
        return []
    # Of either form, whichever the keyword has: a reference finds schemas in both.
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else []


def _check_reference(reference: Any) -> None:
    """Check that a JSON Pointer leads to a schema; nothing was checked anywhere else."""
    pointer = unquote(reference.partition("#")[2]) if isinstance(reference, str) else ""
    # Else it names a whole schema or an anchor, or is nothing that the engine accepts.
    if pointer.startswith("/") and not _leads_to_schema(pointer.split("/")[1:]):
        raise GrammarInvalid(f"$ref {_shown(reference)} leads to no schema")


def _leads_to_schema(names: list[str]) -> bool:
    """Say whether names lead from one schema to another, which their own words tell."""
    at = 0
    while at < len(names):
        keyword, at = names[at], at + 1
        if keyword in _ONE_BELOW:
            at += keyword in _MANY_BELOW and names[at : at + 1] != [] and names[at].isdecimal()
        elif keyword in _MANY_BELOW and at < len(names):
            at += 1
        else:
            return False
    return True


def _check_numbers(keyword: str, value: Any) -> None:
    todo = [value]
    while todo:
        match todo.pop():
            case dict() as named:
                todo += named.values()
            case list() as listed:
                todo += listed
            case int() | WrittenFloat() as number if not _is_kept(number):
                written = number.text if isinstance(number, WrittenFloat) else str(number)
                raise GrammarInvalid(
                    f"{keyword} has the number {_shown(written)}, which the engine would change: "
                    f"it keeps integers up to 2^53 - 1, and others of {DIGITS_MAX} digits"
                )
            case _:
                pass


def _is_kept(number: int | WrittenFloat) -> bool:
    """Say whether the engine keeps a number as it is written."""
    if isinstance(number, int):
        return abs(number) <= INTEGER_MAX
    written = _NUMBER.fullmatch(number.text)
    if written is None:
        return False  # an exponent beyond all float64
    whole, part, power = written.groups(default="")
    digits = (whole + part).lstrip("0")
    kept = digits.rstrip("0")
    places = len(part) - int(power or "0") - (len(digits) - len(kept))
    return not kept or (
        len(kept) <= DIGITS_MAX and places <= PLACES_MAX and abs(number) <= INTEGER_MAX
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…")
