"""Bounded reader and writer of lib0, the encoding of Yjs (spec/06-document, section 3).

The input is untrusted. Every count is checked against the bytes left, integers are
minimal, values are JSON and read without recursion.
"""

import math
import struct
from dataclasses import dataclass

from replica.errors import EntryRefused

NESTING_MAX = 64
SAFE_INTEGER_MAX = 2**53 - 1

# lib0 `any` tags, counted down from 127.
_UNDEFINED, _NULL, _INTEGER, _FLOAT32, _FLOAT64, _BIGINT = 127, 126, 125, 124, 123, 122
_FALSE, _TRUE, _STRING, _OBJECT, _ARRAY, _BYTES = 121, 120, 119, 118, 117, 116
_FLOAT_FORMS = {_FLOAT32: ">f", _FLOAT64: ">d"}


class UpdateMalformed(EntryRefused):
    """The bytes are not a Yjs v1 update in strict form."""

    reason = "DOCUMENT_MALFORMED"
    next_step = "Drop the update; its author must encode a correct one in a new entry."


class NestingTooDeep(EntryRefused):
    """A value is nested deeper than 64 containers."""

    reason = "DOCUMENT_NESTING_TOO_DEEP"
    next_step = "Store a flatter value."


class ValueRefused(EntryRefused):
    """A value is not JSON: undefined, bytes, not finite, or an integer too large to write."""

    reason = "DOCUMENT_VALUE_REFUSED"
    next_step = "Store null, booleans, strings, finite numbers, lists or maps of these."


def varuint(value: int) -> bytes:
    """Encode `value`, at least 0, in groups of 7 bits, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value: str) -> bytes:
    """Encode `value` as its UTF-8 size and bytes."""
    data = value.encode()
    return varuint(len(data)) + data


class Reader:
    """A cursor over the input that never reads past its end."""

    def __init__(self, data: bytes) -> None:
        """Start at the first byte."""
        self.data = data
        self.at = 0

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes. Raises UpdateMalformed."""
        end = self.at + size
        if end > len(self.data):
            raise UpdateMalformed(f"The update ends inside a field at byte {self.at}.")
        data = self.data[self.at : end]
        self.at = end
        return data

    def byte(self) -> int:
        """Return the next byte."""
        return self.read(1)[0]

    def varuint(self) -> int:
        """Return the next unsigned integer: minimal, at most 2**53 - 1."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if value > SAFE_INTEGER_MAX:
                raise UpdateMalformed(f"An integer before byte {self.at} is above 2**53 - 1.")
            if byte < 0x80:
                break
            shift += 7
            if shift > 49:
                raise UpdateMalformed(f"An integer before byte {self.at} is too long.")
        if byte == 0 and shift:
            raise UpdateMalformed(f"An integer before byte {self.at} is not minimal.")
        return value

    def text(self) -> str:
        """Return the next string: its UTF-8 size, then its bytes."""
        try:
            return self.read(self.varuint()).decode()
        except UnicodeDecodeError:
            raise UpdateMalformed(f"A string before byte {self.at} is not UTF-8.") from None

    def length(self) -> int:
        """Return the next count, at least 1."""
        length = self.varuint()
        if not length:
            raise UpdateMalformed(f"The count before byte {self.at} is 0.")
        return length


@dataclass(slots=True)
class _Open:
    """An unfinished container: the number of values left, and for a map the keys so far."""

    left: int
    keys: set[str] | None


def pass_value(reader: Reader) -> None:
    """Skip one `any` value. Raises NestingTooDeep, ValueRefused, UpdateMalformed."""
    # An explicit stack: the input chooses the depth, which must not exhaust Python's stack.
    stack = [_Open(1, None)]
    while stack:
        top = stack[-1]
        if not top.left:
            stack.pop()
            continue
        top.left -= 1
        if top.keys is not None:
            _pass_key(reader, top.keys)
        kind = reader.byte()
        if kind not in (_ARRAY, _OBJECT):
            _pass_scalar(reader, kind)
            continue
        if len(stack) > NESTING_MAX:
            raise NestingTooDeep(f"The value at byte {reader.at} is nested too deep.")
        stack.append(_Open(reader.varuint(), set() if kind == _OBJECT else None))


def _pass_key(reader: Reader, keys: set[str]) -> None:
    key = reader.text()
    if key in keys:
        raise UpdateMalformed(f"A map before byte {reader.at} repeats a key.")
    keys.add(key)


def _pass_scalar(reader: Reader, kind: int) -> None:
    if kind in (_NULL, _FALSE, _TRUE):
        return
    if kind == _STRING:
        reader.text()
    elif kind == _INTEGER:
        _pass_integer(reader)
    elif kind in _FLOAT_FORMS:
        _pass_float(reader, _FLOAT_FORMS[kind])
    elif kind in (_UNDEFINED, _BIGINT, _BYTES):
        raise ValueRefused(f"The value at byte {reader.at} has no JSON form.")
    else:
        raise UpdateMalformed(f"The value at byte {reader.at} is of an unknown kind.")


def _pass_float(reader: Reader, form: str) -> None:
    (value,) = struct.unpack(form, reader.read(struct.calcsize(form)))
    if not math.isfinite(value):
        raise ValueRefused(f"The number before byte {reader.at} is not finite.")


def _pass_integer(reader: Reader) -> None:
    # A signed integer: sign in bit 6 of the first byte, 6 value bits there, 7 in each after.
    first = byte = reader.byte()
    value, shift = first & 0x3F, 6
    while byte >= 0x80:
        byte = reader.byte()
        value |= (byte & 0x7F) << shift
        shift += 7
        if value > SAFE_INTEGER_MAX:
            raise UpdateMalformed(f"The integer before byte {reader.at} is above 2**53 - 1.")
        if shift > 55:
            raise UpdateMalformed(f"An integer before byte {reader.at} is too long.")
    if (byte == 0 and shift > 6) or (value == 0 and first & 0x40):
        raise UpdateMalformed(f"An integer before byte {reader.at} is not minimal.")
