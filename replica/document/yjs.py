"""Bounded reader and writer of Yjs v1 updates (spec/06-document, section 3).

An update is bytes from a stranger, and the engine that merges updates can be
made to overflow its stack. So this reader goes first: one pass, no recursion,
at most one object per two bytes of input, every count checked against what is
left. It is stricter than the format (minimal integers, one section per
client, ascending deletions, JSON values only), so that two implementations
can't understand the same bytes differently.

It knows nothing of entries: which clients, origins and roots an update may
name is decided by replica/document/fold.py.
"""

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple, TypeVar

from replica.errors import EntryRefused
from replica.limits import DOCUMENT_UPDATE_BYTES_MAX

NESTING_MAX = 64
CLOCKS_MAX = 64 * 1024
"""Clocks one update may take: more can't come from 64 KiB of edits."""
SAFE_INTEGER_MAX = 2**53 - 1
EMPTY_UPDATE = b"\x00\x00"
"""No structs, no deletions."""

_HAS_ORIGIN, _HAS_RIGHT_ORIGIN, _HAS_KEY = 0x80, 0x40, 0x20
_CONTENT_BITS = 0x1F
# lib0 `any` tags, counted down from 127.
_UNDEFINED, _NULL, _INTEGER, _FLOAT32, _FLOAT64, _BIGINT = 127, 126, 125, 124, 123, 122
_FALSE, _TRUE, _STRING, _OBJECT, _ARRAY, _BYTES = 121, 120, 119, 118, 117, 116
_FLOAT_FORMS = {_FLOAT32: ">f", _FLOAT64: ">d"}
_XML_ELEMENT, _XML_HOOK, _TYPE_MAX = 3, 5, 6

_Run = TypeVar("_Run", "Struct", "Deletion")


class UpdateMalformed(EntryRefused):
    """The bytes are no Yjs v1 update of the strict form."""

    reason = "DOCUMENT_MALFORMED"
    next_step = "Drop the update; its author must encode a correct one in a new entry."


class UpdateTooLarge(EntryRefused):
    """The update is larger than 64 KiB or takes more than 65,536 clocks."""

    reason = "DOCUMENT_TOO_LARGE"
    next_step = "Split the edit into several entries."


class NestingTooDeep(EntryRefused):
    """A value has more than 64 containers inside each other."""

    reason = "DOCUMENT_NESTING_TOO_DEEP"
    next_step = "Store a flatter value."


class ValueRefused(EntryRefused):
    """A value is not JSON: undefined, bytes, not finite, or beyond 2**53 - 1."""

    reason = "DOCUMENT_VALUE_REFUSED"
    next_step = "Store null, booleans, strings, finite numbers, lists or maps of these."


class Content(IntEnum):
    """What a struct holds; the numbers are the format's."""

    GC = 0
    DELETED = 1
    JSON = 2
    BINARY = 3
    STRING = 4
    EMBED = 5
    FORMAT = 6
    TYPE = 7
    ANY = 8
    DOC = 9
    SKIP = 10


class StructId(NamedTuple):
    """One clock of one client: the name of one element."""

    client: int
    clock: int


@dataclass(frozen=True, slots=True)
class Struct:
    """A run of `length` elements that starts at `id`.

    `root`, `parent` and `key` are None where the format leaves them out, as it
    does next to an origin. `content_bytes` are kept as they came.
    """

    id: StructId
    length: int
    content: Content
    content_bytes: bytes
    origin: StructId | None = None
    right_origin: StructId | None = None
    root: str | None = None
    parent: StructId | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Deletion:
    """A run of `length` deleted elements that starts at `id`."""

    id: StructId
    length: int


@dataclass(frozen=True, slots=True)
class DecodedUpdate:
    """The two halves of an update, in the order of its bytes."""

    structs: tuple[Struct, ...]
    deletions: tuple[Deletion, ...]


def decode_update(data: bytes) -> DecodedUpdate:
    """Read one whole update, in time and memory linear in its size.

    Raises UpdateTooLarge, UpdateMalformed, NestingTooDeep or ValueRefused.
    """
    if len(data) > DOCUMENT_UPDATE_BYTES_MAX:
        raise UpdateTooLarge(
            f"The update has {len(data)} bytes; {DOCUMENT_UPDATE_BYTES_MAX} is the limit."
        )
    reader = _Reader(data)
    update = DecodedUpdate(tuple(_structs(reader)), tuple(_deletions(reader)))
    if reader.at != len(data):
        raise UpdateMalformed(f"{len(data) - reader.at} bytes follow the update.")
    return update


def encode_update(update: DecodedUpdate) -> bytes:
    """Write `update` in its one order: clients descending, clocks ascending.

    Structs of one client must be contiguous. Equal updates give equal bytes.
    """
    sections = _by_client(update.structs)
    out = bytearray(varuint(len(sections)))
    for client, structs in sections:
        out += varuint(len(structs)) + varuint(client) + varuint(structs[0].id.clock)
        for item in structs:
            out += _encoded_struct(item)
    ranges = _by_client(update.deletions)
    out += varuint(len(ranges))
    for client, deletions in ranges:
        out += varuint(client) + varuint(len(deletions))
        for deletion in deletions:
            out += varuint(deletion.id.clock) + varuint(deletion.length)
    return bytes(out)


def rename_clients(update: DecodedUpdate, clients: Mapping[int, int]) -> DecodedUpdate:
    """Return `update` with every client id replaced by what `clients` maps it to."""

    def renamed(name: StructId) -> StructId:
        return StructId(clients[name.client], name.clock)

    def optional(name: StructId | None) -> StructId | None:
        return None if name is None else renamed(name)

    return DecodedUpdate(
        tuple(
            replace(
                item,
                id=renamed(item.id),
                origin=optional(item.origin),
                right_origin=optional(item.right_origin),
                parent=optional(item.parent),
            )
            for item in update.structs
        ),
        tuple(replace(deletion, id=renamed(deletion.id)) for deletion in update.deletions),
    )


def named_clients(update: DecodedUpdate) -> set[int]:
    """Return every client id that `update` mentions."""
    names = [deletion.id for deletion in update.deletions]
    for item in update.structs:
        names += (
            name
            for name in (item.id, item.origin, item.right_origin, item.parent)
            if name is not None
        )
    return {name.client for name in names}


def varuint(value: int) -> bytes:
    """Encode `value` >= 0 in groups of 7 bits, lowest first."""
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


def _by_client(items: Iterable[_Run]) -> list[tuple[int, list[_Run]]]:
    ordered = sorted(items, key=lambda item: (-item.id.client, item.id.clock))
    return [(client, list(run)) for client, run in groupby(ordered, lambda i: i.id.client)]


def _encoded_struct(item: Struct) -> bytes:
    flags = 0
    fields = b""
    for flag, origin in ((_HAS_ORIGIN, item.origin), (_HAS_RIGHT_ORIGIN, item.right_origin)):
        if origin is not None:
            flags |= flag
            fields += varuint(origin.client) + varuint(origin.clock)
    if item.root is not None:
        fields += b"\x01" + text(item.root)
    elif item.parent is not None:
        fields += b"\x00" + varuint(item.parent.client) + varuint(item.parent.clock)
    if item.key is not None:
        flags |= _HAS_KEY
        fields += text(item.key)
    return bytes([item.content | flags]) + fields + item.content_bytes


class _Reader:
    """A cursor over the input; every read checks that the bytes are there."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise UpdateMalformed(f"The update ends inside a field at byte {self.at}.")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def varuint(self) -> int:
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
        try:
            return self.take(self.varuint()).decode()
        except UnicodeDecodeError:
            raise UpdateMalformed(f"A string before byte {self.at} is not UTF-8.") from None

    def struct_id(self) -> StructId:
        return StructId(self.varuint(), self.varuint())

    def length(self) -> int:
        length = self.varuint()
        if not length:
            raise UpdateMalformed(f"A run before byte {self.at} is empty.")
        return length


def _structs(reader: _Reader) -> Iterable[Struct]:
    clients: set[int] = set()
    for _ in range(reader.varuint()):
        count = reader.length()
        client, clock = reader.struct_id()
        if client in clients:
            raise UpdateMalformed(f"Client {client} has two sections.")
        clients.add(client)
        for _ in range(count):
            item = _struct(reader, StructId(client, clock))
            clock += item.length
            if clock > SAFE_INTEGER_MAX:
                raise UpdateMalformed(f"The clocks of client {client} overflow.")
            yield item


def _struct(reader: _Reader, name: StructId) -> Struct:
    info = reader.byte()
    try:
        content = Content(info & _CONTENT_BITS)
    except ValueError:
        raise UpdateMalformed(f"Byte {reader.at - 1} names no known content.") from None
    bare = content in (Content.GC, Content.SKIP)
    if bare and info != content:
        raise UpdateMalformed(f"Byte {reader.at - 1} gives a gap an origin or a key.")
    origin = reader.struct_id() if info & _HAS_ORIGIN else None
    right_origin = reader.struct_id() if info & _HAS_RIGHT_ORIGIN else None
    root = parent = key = None
    if not bare and origin is None and right_origin is None:
        match reader.varuint():
            case 1:
                root = reader.text()
            case 0:
                parent = reader.struct_id()
            case _:
                raise UpdateMalformed(f"The parent before byte {reader.at} is of no known form.")
        key = reader.text() if info & _HAS_KEY else None
    start = reader.at
    length = _CONTENT_READERS[content](reader)
    content_bytes = reader.data[start : reader.at]
    return Struct(name, length, content, content_bytes, origin, right_origin, root, parent, key)


def _deletions(reader: _Reader) -> Iterable[Deletion]:
    clients: set[int] = set()
    for _ in range(reader.varuint()):
        client = reader.varuint()
        if client in clients:
            raise UpdateMalformed(f"Client {client} has two lists of deletions.")
        clients.add(client)
        end = 0
        for _ in range(reader.length()):
            deletion = Deletion(StructId(client, reader.varuint()), reader.length())
            if deletion.id.clock < end:
                raise UpdateMalformed(f"The deletions of client {client} are not ascending.")
            end = deletion.id.clock + deletion.length
            yield deletion


# Each passes over one content and returns how many clocks it takes.


def _strings(reader: _Reader) -> int:
    count = reader.length()
    for _ in range(count):
        reader.text()
    return count


def _bytes(reader: _Reader) -> int:
    reader.take(reader.varuint())
    return 1


def _string(reader: _Reader) -> int:
    units = len(reader.text().encode("utf-16-le")) // 2
    if not units:
        raise UpdateMalformed(f"A string before byte {reader.at} is empty.")
    return units


def _one_text(reader: _Reader) -> int:
    reader.text()
    return 1


def _two_texts(reader: _Reader) -> int:
    reader.text()
    reader.text()
    return 1


def _type(reader: _Reader) -> int:
    kind = reader.varuint()
    if kind > _TYPE_MAX:
        raise UpdateMalformed(f"Shared type {kind} is not known.")
    if kind in (_XML_ELEMENT, _XML_HOOK):
        reader.text()
    return 1


def _values(reader: _Reader) -> int:
    count = reader.length()
    for _ in range(count):
        _pass_value(reader)
    return count


def _doc(reader: _Reader) -> int:
    reader.text()
    _pass_value(reader)
    return 1


_CONTENT_READERS: Mapping[Content, Callable[[_Reader], int]] = {
    Content.GC: _Reader.length,
    Content.DELETED: _Reader.length,
    Content.JSON: _strings,
    Content.BINARY: _bytes,
    Content.STRING: _string,
    Content.EMBED: _one_text,
    Content.FORMAT: _two_texts,
    Content.TYPE: _type,
    Content.ANY: _values,
    Content.DOC: _doc,
    Content.SKIP: _Reader.length,
}


@dataclass(slots=True)
class _Open:
    """A container being read: the values still to come, a map's keys so far."""

    left: int
    keys: set[str] | None


def _pass_value(reader: _Reader) -> None:
    # An explicit stack: the depth is the attacker's choice, ours is not.
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


def _pass_key(reader: _Reader, keys: set[str]) -> None:
    key = reader.text()
    if key in keys:
        raise UpdateMalformed(f"A map before byte {reader.at} has one key twice.")
    keys.add(key)


def _pass_scalar(reader: _Reader, kind: int) -> None:
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
        raise UpdateMalformed(f"The value at byte {reader.at} is of no known kind.")


def _pass_float(reader: _Reader, form: str) -> None:
    (value,) = struct.unpack(form, reader.take(struct.calcsize(form)))
    if not math.isfinite(value):
        raise ValueRefused(f"The number before byte {reader.at} is not finite.")


def _pass_integer(reader: _Reader) -> None:
    # A signed integer keeps its sign in bit 6 of the first byte, 6 bits there, 7 after.
    first = byte = reader.byte()
    value, shift = first & 0x3F, 6
    while byte >= 0x80:
        byte = reader.byte()
        value |= (byte & 0x7F) << shift
        shift += 7
        if value > SAFE_INTEGER_MAX:
            raise ValueRefused(f"The integer before byte {reader.at} is above 2**53 - 1.")
        if shift > 55:
            raise UpdateMalformed(f"An integer before byte {reader.at} is too long.")
    if (byte == 0 and shift > 6) or (value == 0 and first & 0x40):
        raise UpdateMalformed(f"An integer before byte {reader.at} is not minimal.")
