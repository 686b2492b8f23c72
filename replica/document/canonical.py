"""JSON values of the document, and their canonical bytes (spec/06-document, section 4).

The bytes are those of RFC 8785 (JSON Canonicalization Scheme): no spaces, keys
ordered by UTF-16 code units, numbers as ECMAScript writes them, UTF-8.
"""

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

from replica.document.lib0 import NESTING_MAX, SAFE_INTEGER_MAX, NestingTooDeep, ValueRefused

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value; whole numbers up to 2**53 - 1 in size are ints, all others floats."""


def plain(value: object, *, depth: int = 0) -> Json:
    """Return a copy of `value` in lists, sorted dicts and scalars, whole numbers as ints.

    `depth` counts the containers around `value`. Raises ValueRefused for a value that
    JSON can't represent exactly, NestingTooDeep beyond 64 containers.
    """
    match value:
        case None | bool():
            return value
        case str():
            return plain_text(value)
        case int() | float():
            return _plain_number(value)
        case Mapping() | list() | tuple() if depth == NESTING_MAX:
            raise NestingTooDeep(f"The value is nested deeper than {NESTING_MAX} containers.")
        case Mapping():
            copy = {plain_text(key): plain(item, depth=depth + 1) for key, item in value.items()}
            return dict(sorted(copy.items()))
        case list() | tuple():
            return [plain(item, depth=depth + 1) for item in value]
        case _:
            raise ValueRefused(f"A {type(value).__name__} is not a JSON value.")


def plain_text(value: object) -> str:
    """Return `value` if it is text that UTF-8 can encode. Raises ValueRefused."""
    if not isinstance(value, str):
        raise ValueRefused(f"A {type(value).__name__} is not text.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueRefused("A text has an unpaired surrogate.") from None
    return str(value)


def canonical_json(value: Json) -> bytes:
    """Encode `value`, the result of `plain`, in the form of RFC 8785."""
    return _encoded(value).encode()


def _plain_number(value: int | float) -> int | float:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueRefused("A number is not finite.")
        exact = value.is_integer() and abs(value) <= SAFE_INTEGER_MAX
        return int(value) if exact else float(value)
    if abs(value) > SAFE_INTEGER_MAX:
        raise ValueRefused("An integer is beyond 2**53 - 1.")
    return int(value)


def _encoded(value: Json) -> str:
    match value:
        case None | bool() | str():
            return json.dumps(value, ensure_ascii=False)
        case int():
            return str(value)
        case float():
            return _encoded_float(value)
        case Mapping():
            # Big-endian UTF-16 bytes compare as code units do.
            keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
            pairs = (f"{_encoded(key)}:{_encoded(value[key])}" for key in keys)
            return "{" + ",".join(pairs) + "}"
        case _:
            return "[" + ",".join(map(_encoded, value)) + "]"


def _encoded_float(value: float) -> str:
    # ECMAScript Number::toString: the shortest digits, which are those of Python's
    # repr, with a rule of its own for the position of the point.
    if value == 0:
        return "0"
    sign, numerals, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, numerals))
    point = len(digits) + int(exponent)
    minus = "-" if sign else ""
    if len(digits) <= point <= 21:
        return minus + digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{minus}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{minus}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{minus}{digits[0]}{fraction}e{point - 1:+d}"
