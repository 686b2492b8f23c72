"""Bounds on the items of a frame or call, counted on its bytes (spec/11-limits, LIM-4).

Pure. An empty item is two bytes in a frame and hundreds once it is parsed, so items
are counted before a parser sees them, and other fields with them: unknown ones, and known
ones that come again. The scan ends at the first bound that is passed, and descends only
into messages that have repeated fields themselves.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from replica import limits
from replica.link.steps import Steps
from replica.refusals import FrameTooLarge

_ITEMS_MAX = {
    "Entry": limits.ENTRIES_PER_FRAME_MAX,
    "LaneHead": limits.HEADS_PER_FRAME_MAX,
    "LaneRange": limits.FETCH_RANGES_MAX,
}
"""Per message type of a repeated field. Any other repeated field has ITEMS_PER_FRAME_MAX, and so
have all other fields together."""

_OTHER_FIELDS = "fields"

STEP_FIELDS = 2_048
"""Fields counted in one step, some 2 ms."""

_UNSCANNED_BYTES = min(_ITEMS_MAX.values())
"""An item has a byte at least, so shorter messages are within every bound."""

_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
_CUT_OFF = -1


@dataclass(slots=True)
class _Field:
    """How a field of a message is counted."""

    name: str = _OTHER_FIELDS
    """The name of its message type, or of the field if it is repeated."""
    is_packed: bool = False
    """It is of repeated numbers, which have a byte each at least."""
    below: "_Shape | None" = None
    """The fields of its messages, where these have repeated ones."""


_Shape = dict[int, _Field]
"""The fields that are counted by name or descended into, by number."""

_OTHER = _Field()


@lru_cache(maxsize=64)
def _shape(descriptor: Any) -> _Shape:  # a message's descriptor
    shape: _Shape = {}
    for one in descriptor.fields:
        of_message = one.message_type
        below = _shape(of_message) if of_message is not None else {}
        if one.is_repeated:
            is_packed = of_message is None and one.type not in (one.TYPE_STRING, one.TYPE_BYTES)
            name = of_message.name if of_message is not None else one.name
            shape[one.number] = _Field(name, is_packed, below or None)
        elif below:
            shape[one.number] = _Field(below=below)
    return shape


def check_steps(data: bytes, descriptor: Any) -> Steps[None]:
    """Raise FrameTooLarge if a message of this descriptor holds too many items, in steps.

    Bytes that do not parse pass: the parser refuses them.
    """
    if len(data) > _UNSCANNED_BYTES:
        yield from _scan(data, 0, len(data), _shape(descriptor), Counter(), 0)


def _scan(
    data: bytes, at: int, end: int, shape: _Shape, counts: "Counter[str]", seen: int
) -> Steps[int]:
    """Count the fields of a message between two offsets; return those seen in this step.

    A group is unknown to all messages, and its fields count like other unknown ones.
    """
    depth = 0
    while 0 <= at < end:
        if seen == STEP_FIELDS:
            yield
            seen = 0
        seen += 1
        tag, at = _varint(data, at, end)
        wire_type, length = tag & 7, 0
        if wire_type == _BYTES:
            length, at = _varint(data, at, end)
        elif wire_type == _VARINT:
            _, at = _varint(data, at, end)
        elif wire_type in (_FIXED32, _FIXED64):
            at += 4 if wire_type == _FIXED32 else 8
        elif wire_type == _GROUP:
            depth += 1
        elif wire_type == _GROUP_END and depth:
            depth -= 1
            continue
        else:
            break
        if at == _CUT_OFF:
            break
        known = _OTHER if depth else shape.get(tag >> 3, _OTHER)
        _count(known.name, max(1, length) if known.is_packed else 1, counts)
        if known.below is not None and wire_type == _BYTES:
            below_end = min(at + length, end)
            seen = yield from _scan(data, at, below_end, known.below, counts, seen)
        at += length
    return seen


def _count(name: str, items: int, counts: "Counter[str]") -> None:
    counts[name] += items
    most = _ITEMS_MAX.get(name, limits.ITEMS_PER_FRAME_MAX)
    if counts[name] > most:
        raise FrameTooLarge(f"more than {most} items of one kind: {name}")


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return (value, next offset); the offset is _CUT_OFF where no varint ends."""
    if 0 <= at < end and (byte := data[at]) < 0x80:  # as most are
        return byte, at + 1
    value = shift = 0
    while 0 <= at < end and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, _CUT_OFF
