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
_VARINT, _BYTES = WireType.VARINT.value, WireType.BYTES.value
_FIXED_BYTES = {WireType.FIXED64.value: 8, WireType.FIXED32.value: 4}
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
    wire_type: int = field(init=False)
    omits_default: bool = field(init=False)
    """Whether its default is never encoded; an empty message is none."""

    def __post_init__(self) -> None:
        """Compute once what is asked for each field of each body."""
        wire_type = _WIRE_TYPES.get(self.form, WireType.BYTES).value
        object.__setattr__(self, "wire_type", wire_type)
        omits_default = not self.repeated and self.oneof is None
        object.__setattr__(self, "omits_default", omits_default)


@dataclass(frozen=True, slots=True)
class Shape:
    """The known fields of one message, by number."""

    fields: Mapping[int, Field] = field(default_factory=dict)


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return (value, next offset). Raises WireMalformed if overlong, too large or cut off."""
    if at < end and data[at] < 0x80:  # as most are
        return data[at], at + 1
    value = shift = 0
    for index in range(at, min(at + 10, end)):
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
class _Scan:
    """The bytes that are scanned, and the fields of all messages in them so far."""

    data: bytes
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
    scan = _Scan(data, len(data) if fields_max is None else fields_max, turn)
    _check(scan, 0, len(data), shape, 0)
    return scan.fields


def _check(scan: _Scan, at: int, end: int, shape: Shape, nesting: int) -> None:
    """Check the message between two offsets: nothing is copied, since there may be thousands."""
    if nesting > NESTING_MAX:
        raise WireMalformed(f"messages nest deeper than {NESTING_MAX}")
    data, fields, last = scan.data, shape.fields, 0
    chosen: set[str] | None = None
    while at < end:
        scan.fields += 1
        if scan.fields > scan.most:
            raise WireMalformed(f"more than {scan.most} fields")
        if scan.turn is not None:
            scan.turn()
        if data[at] < 0x80:  # as in `read_varint`, without a call
            tag, at = data[at], at + 1
        else:
            tag, at = read_varint(data, at, end)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= FIELD_NUMBER_MAX:
            raise WireMalformed(f"field number {number} is out of range")
        known = fields.get(number)
        # Unknown fields may repeat: a newer version may have made them repeated.
        repeats = known is None or known.repeated
        if number < last or (number == last and not repeats):
            raise WireMalformed(f"field {number} is out of order or repeated")
        last = number
        if known is None:
            at = _check_unknown(data, at, end, wire_type, number)
            continue
        if known.oneof is not None:
            # Some parsers keep the first member, some the last.
            if chosen is None:
                chosen = set()
            elif known.oneof in chosen:
                raise WireMalformed(f"field {number} is a second member of one oneof")
            chosen.add(known.oneof)
        if wire_type != known.wire_type:
            raise WireMalformed(f"field {number} has wire type {wire_type}, not {known.wire_type}")
        if wire_type != _BYTES:
            at = _check_number(data, at, end, number, known)
            continue
        if at < end and data[at] < 0x80:
            size, at = data[at], at + 1
        else:
            size, at = read_varint(data, at, end)
        if size > end - at:
            raise WireMalformed(f"field {number} is cut off")
        if known.form is Form.MESSAGE:
            assert known.shape is not None, "message fields carry a shape"
            _check(scan, at, at + size, known.shape, nesting + 1)
        else:
            _check_content(data[at : at + size], number, known)
        at += size


def _check_unknown(data: bytes, at: int, end: int, wire_type: int, number: int) -> int:
    """Return the end of the value of an unknown field."""
    if wire_type == _VARINT:
        _, at = read_varint(data, at, end)
    elif wire_type == _BYTES:
        size, at = read_varint(data, at, end)
        at += size
    elif wire_type in _FIXED_BYTES:
        at += _FIXED_BYTES[wire_type]
    else:
        raise WireMalformed(f"field {number} has wire type {wire_type}")
    if at > end:
        raise WireMalformed(f"field {number} is cut off")
    return at


def _check_number(data: bytes, at: int, end: int, number: int, known: Field) -> int:
    """Check a varint or a number of fixed size; return its end."""
    if known.wire_type == _VARINT:
        value, after = read_varint(data, at, end)
        if value > _VARINT_MAX[known.form]:
            raise WireMalformed(f"field {number} is out of range")
        is_default = value == 0
    else:
        after = at + _FIXED_BYTES[known.wire_type]
        if after > end:
            raise WireMalformed(f"field {number} is cut off")
        is_default = not any(data[at:after])
    if is_default and known.omits_default:
        raise WireMalformed(f"field {number} encodes its default")
    return after


def _check_content(content: bytes, number: int, known: Field) -> None:
    """Check the bytes of a field that is no message."""
    if not content and known.omits_default:
        raise WireMalformed(f"field {number} encodes its default")
    match known.form:
        case Form.STRING:
            try:
                content.decode("utf-8")
            except UnicodeDecodeError as error:
                raise WireMalformed(f"field {number} is not UTF-8") from error
        case Form.PACKED_FIXED32:
            if len(content) % 4:
                raise WireMalformed(f"field {number} is cut off")
        case Form.PACKED_UINT32:
            if _PACKED_UINT32.fullmatch(content) is None:
                raise WireMalformed(f"field {number} packs something else than minimal uint32")
        case _:
            pass
