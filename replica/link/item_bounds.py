"""Bounds on the items of a frame or call, counted on its bytes (spec/11-limits, LIM-4).

Pure. An empty item is two bytes in a frame and hundreds once it is parsed, so items
are counted before a parser sees them. The scan ends at the first bound that is
passed, and descends only into messages that have repeated fields themselves.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from replica import limits
from replica.refusals import FrameTooLarge

_ITEMS_MAX = {
    "Entry": limits.ENTRIES_PER_FRAME_MAX,
    "LaneHead": limits.HEADS_PER_FRAME_MAX,
    "LaneRange": limits.FETCH_RANGES_MAX,
}
"""Per message type of a repeated field; any other repeated field has ITEMS_PER_FRAME_MAX."""

_UNSCANNED_BYTES = min(_ITEMS_MAX.values())
"""An item has a byte at least, so shorter messages are within every bound."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CUT_OFF = -1


@dataclass(slots=True)
class _Shape:
    """The repeated fields of a message and the fields to descend into, by number."""

    items: dict[int, str] = field(default_factory=dict)
    """Per repeated field: the name of its message type, or of the field."""
    packed: dict[int, str] = field(default_factory=dict)
    """Per repeated number: its name. Its items have a byte each at least."""
    nested: dict[int, "_Shape"] = field(default_factory=dict)


@lru_cache(maxsize=64)
def _shape(descriptor: Any) -> _Shape:  # a message's descriptor
    shape = _Shape()
    for one in descriptor.fields:
        of_message = one.message_type
        repeats = one.is_repeated
        if repeats and (of_message is not None or one.type in (one.TYPE_STRING, one.TYPE_BYTES)):
            shape.items[one.number] = of_message.name if of_message is not None else one.name
        elif repeats:
            shape.packed[one.number] = one.name
        if of_message is not None:
            below = _shape(of_message)
            if below.items or below.packed or below.nested:
                shape.nested[one.number] = below
    return shape


def check_items(data: bytes, descriptor: Any) -> None:
    """Raise FrameTooLarge if a message of this descriptor holds too many items.

    Bytes that do not parse pass: the parser refuses them.
    """
    if len(data) <= _UNSCANNED_BYTES:
        return
    shape = _shape(descriptor)
    if shape.items or shape.packed or shape.nested:
        _scan(data, 0, len(data), shape, Counter())


def _scan(data: bytes, at: int, end: int, shape: _Shape, counts: "Counter[str]") -> None:
    while 0 <= at < end:
        tag, at = _varint(data, at, end)
        number, wire_type = tag >> 3, tag & 7
        length = 0
        if wire_type == _VARINT:
            _, at = _varint(data, at, end)
        elif wire_type == _BYTES:
            length, at = _varint(data, at, end)
        elif wire_type in (_FIXED32, _FIXED64):
            at += 4 if wire_type == _FIXED32 else 8
        else:
            return  # a group: no message has one
        if at == _CUT_OFF:
            return
        if number in shape.items:
            _count(shape.items[number], 1, counts)
        elif number in shape.packed:
            _count(shape.packed[number], max(1, length), counts)
        if wire_type == _BYTES:
            below = shape.nested.get(number)
            if below is not None:
                _scan(data, at, min(at + length, end), below, counts)
            at += length


def _count(name: str, items: int, counts: "Counter[str]") -> None:
    counts[name] += items
    most = _ITEMS_MAX.get(name, limits.ITEMS_PER_FRAME_MAX)
    if counts[name] > most:
        raise FrameTooLarge(f"more than {most} items of one kind: {name}")


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return (value, next offset); the offset is _CUT_OFF where no varint ends."""
    value = shift = 0
    while 0 <= at < end and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, _CUT_OFF
