"""The strict wire subset of protobuf (spec/02-entry §2).

Parsers disagree about non-minimal encodings, and an entry whose meaning depends
on the parser would make correct replicas diverge. So headers and bodies are
scanned here before a protobuf parser reads them: minimal varints, ascending
fields, known wire types, no groups, no explicit defaults, one member of a oneof.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from replica.refusals import WireMalformed

FIELD_NUMBER_MAX = 2**29 - 1
NESTING_MAX = 8


class WireType(IntEnum):
    """The wire types the subset knows; groups (3, 4) are refused."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


class Form(IntEnum):
    """The type of a known field's value."""

    UINT64 = 0
    UINT32 = 1
    BOOL = 2
    FIXED64 = 3
    BYTES = 4
    STRING = 5
    MESSAGE = 6
    PACKED_UINT32 = 7
    ENUM = 8
    FIXED32 = 9
    PACKED_FIXED32 = 10


_WIRE_TYPES = {
    Form.UINT64: WireType.VARINT,
    Form.UINT32: WireType.VARINT,
    Form.ENUM: WireType.VARINT,
    Form.BOOL: WireType.VARINT,
    Form.FIXED64: WireType.FIXED64,
    Form.FIXED32: WireType.FIXED32,
}
# Enums are int32 to some parsers and uint32 to others; below 2^31 all agree.
_VARINT_MAX = {
    Form.UINT64: 2**64 - 1,
    Form.UINT32: 2**32 - 1,
    Form.ENUM: 2**31 - 1,
    Form.BOOL: 1,
}


_PACKED_UINT32 = re.compile(
    rb"(?:[\x00-\x7f]|[\x80-\xff]{1,3}+[\x01-\x7f]|[\x80-\xff]{4}[\x01-\x0f])*+"
)
"""Minimal varints below 2^32; an answer has thousands of them."""


@dataclass(frozen=True, slots=True)
class Field:
    """The form of a known field; a member of a oneof may encode its default."""

    form: Form
    repeated: bool = False
    oneof: str | None = None
    shape: "Shape | None" = None


@dataclass(frozen=True, slots=True)
class Shape:
    """The known fields of one message, by number."""

    fields: Mapping[int, Field] = field(default_factory=dict)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, next offset). Raises WireMalformed if overlong, too large or cut off."""
    if at < len(data) and data[at] < 0x80:  # as most are
        return data[at], at + 1
    value = shift = 0
    for index in range(at, min(at + 10, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and index > at:
                raise WireMalformed("a varint is not minimal")
            if value >= 2**64:
                raise WireMalformed("a varint exceeds 64 bits")
            return value, index + 1
        shift += 7
    raise WireMalformed("a varint is cut off or longer than 10 bytes")


@dataclass(slots=True)
class _Count:
    """The fields of a message and of those inside it, as far as it was scanned."""

    most: int
    turn: Callable[[], object] | None = None
    fields: int = 0


def check(
    data: bytes,
    shape: Shape,
    *,
    fields_max: int | None = None,
    turn: Callable[[], object] | None = None,
) -> int:
    """Return the number of fields, those inside messages counted, at most `fields_max`.

    An empty field is two bytes here, and hundreds once it is parsed. `turn` is called for each.
    Raises WireMalformed unless `data` is in the strict subset.
    """
    count = _Count(len(data) if fields_max is None else fields_max, turn)
    _check(data, shape, 0, count)
    return count.fields


def _check(data: bytes, shape: Shape, nesting: int, count: _Count) -> None:
    if nesting > NESTING_MAX:
        raise WireMalformed(f"messages nest deeper than {NESTING_MAX}")
    at, last = 0, 0
    chosen: set[str] = set()
    while at < len(data):
        count.fields += 1
        if count.fields > count.most:
            raise WireMalformed(f"more than {count.most} fields")
        if count.turn is not None:
            count.turn()
        tag, at = read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= FIELD_NUMBER_MAX:
            raise WireMalformed(f"field number {number} is out of range")
        known = shape.fields.get(number)
        # Unknown fields may repeat: a newer version may have made them repeated.
        repeats = known.repeated if known else True
        if number < last or (number == last and not repeats):
            raise WireMalformed(f"field {number} is out of order or repeated")
        last = number
        if known is not None and known.oneof is not None:
            # Some parsers keep the first member, some the last.
            if known.oneof in chosen:
                raise WireMalformed(f"field {number} is a second member of one oneof")
            chosen.add(known.oneof)
        at = _check_value(data, at, wire_type, number, known, nesting, count)


def _check_value(
    data: bytes,
    at: int,
    wire_type: int,
    number: int,
    known: Field | None,
    nesting: int,
    count: _Count,
) -> int:
    if known is not None:
        expected = _WIRE_TYPES.get(known.form, WireType.BYTES)
        if wire_type != expected:
            raise WireMalformed(f"field {number} has wire type {wire_type}, not {expected.value}")
    match wire_type:
        case WireType.VARINT:
            value, end = read_varint(data, at)
            if known is not None and value > _VARINT_MAX[known.form]:
                raise WireMalformed(f"field {number} is out of range")
            is_default = value == 0
        case WireType.FIXED64 | WireType.FIXED32:
            end = at + (8 if wire_type == WireType.FIXED64 else 4)
            if end > len(data):
                raise WireMalformed(f"field {number} is cut off")
            is_default = not any(data[at:end])
        case WireType.BYTES:
            size, start = read_varint(data, at)
            end = start + size
            if end > len(data):
                raise WireMalformed(f"field {number} is cut off")
            is_default = size == 0 and (known is None or known.form != Form.MESSAGE)
            if known is not None:
                _check_content(data[start:end], number, known, nesting, count)
        case _:
            raise WireMalformed(f"field {number} has wire type {wire_type}")
    if is_default and known is not None and not known.repeated and known.oneof is None:
        raise WireMalformed(f"field {number} encodes its default")
    return end


def _check_content(content: bytes, number: int, known: Field, nesting: int, count: _Count) -> None:
    match known.form:
        case Form.MESSAGE:
            assert known.shape is not None, "message fields carry a shape"
            _check(content, known.shape, nesting + 1, count)
        case Form.STRING:
            try:
                content.decode("utf-8")
            except UnicodeDecodeError as error:
                raise WireMalformed(f"field {number} is not UTF-8") from error
        case Form.PACKED_UINT32 | Form.PACKED_FIXED32 if not content:
            raise WireMalformed(f"field {number} is packed and empty")
        case Form.PACKED_FIXED32:
            if len(content) % 4:
                raise WireMalformed(f"field {number} is cut off")
        case Form.PACKED_UINT32:
            if _PACKED_UINT32.fullmatch(content) is None:
                raise WireMalformed(f"field {number} packs something else than minimal uint32")
        case _:
            pass
