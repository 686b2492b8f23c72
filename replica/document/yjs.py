"""Bounded reader and writer of Yjs v1 updates (spec/06-document, section 3).

Updates are untrusted, and crafted ones overflow the stack of the engine that merges
them. So this reader checks each update first: one pass, no recursion, at most one
object per two bytes of input, every count checked against the bytes left. It is
stricter than the format (minimal integers, one section per client, ascending
deletions, JSON values only), so that no two implementations read the same bytes
differently.

Entries are unknown here: replica/document/fold.py decides which clients, origins
and roots an update may name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple, TypeVar

from replica.document.lib0 import (
    SAFE_INTEGER_MAX,
    Reader,
    UpdateMalformed,
    pass_value,
    text,
    varuint,
)
from replica.errors import EntryRefused
from replica.limits import DOCUMENT_UPDATE_BYTES_MAX

CLOCKS_MAX = 64 * 1024
"""Most clocks of one update: 64 KiB of edits never have more."""
EMPTY_UPDATE = b"\x00\x00"
"""No structs, no deletions."""

_HAS_ORIGIN, _HAS_RIGHT_ORIGIN, _HAS_KEY = 0x80, 0x40, 0x20
_CONTENT_BITS = 0x1F
_XML_ELEMENT, _XML_HOOK, _TYPE_MAX = 3, 5, 6

_Run = TypeVar("_Run", "Struct", "Deletion")


class UpdateTooLarge(EntryRefused):
    """The update is larger than 64 KiB or has more than 65,536 clocks."""

    reason = "DOCUMENT_TOO_LARGE"
    next_step = "Split the edit into several entries."


class Content(IntEnum):
    """The content type of a struct, with the numbers of the format."""

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

    `root`, `parent` and `key` are None where the format omits them, as it does
    beside an origin. `content_bytes` are kept as received.
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
            f"The update has {len(data)} bytes; the limit is {DOCUMENT_UPDATE_BYTES_MAX}."
        )
    reader = Reader(data)
    update = DecodedUpdate(tuple(_structs(reader)), tuple(_deletions(reader)))
    if reader.at != len(data):
        raise UpdateMalformed(f"{len(data) - reader.at} bytes follow the update.")
    return update


def encode_update(update: DecodedUpdate) -> bytes:
    """Encode `update` in canonical order: clients descending, clocks ascending.

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
    """Return `update` with every client id mapped by `clients`."""

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
    """Return every client id in `update`."""
    names = [deletion.id for deletion in update.deletions]
    for item in update.structs:
        names += (
            name
            for name in (item.id, item.origin, item.right_origin, item.parent)
            if name is not None
        )
    return {name.client for name in names}


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


def _struct_id(reader: Reader) -> StructId:
    name = StructId(reader.varuint(), reader.varuint())
    _check_end(name, 1)
    return name


def _check_end(name: StructId, length: int) -> None:
    if name.clock + length > SAFE_INTEGER_MAX:
        raise UpdateMalformed(f"The clocks of client {name.client} overflow.")


def _structs(reader: Reader) -> Iterable[Struct]:
    clients: set[int] = set()
    for _ in range(reader.varuint()):
        count = reader.length()
        client, clock = _struct_id(reader)
        if client in clients:
            raise UpdateMalformed(f"Client {client} has two sections.")
        clients.add(client)
        for _ in range(count):
            item = _struct(reader, StructId(client, clock))
            _check_end(item.id, item.length)
            clock += item.length
            yield item


def _struct(reader: Reader, name: StructId) -> Struct:
    info = reader.byte()
    try:
        content = Content(info & _CONTENT_BITS)
    except ValueError:
        raise UpdateMalformed(f"Byte {reader.at - 1} is not a known content type.") from None
    bare = content in (Content.GC, Content.SKIP)
    if bare and info != content:
        raise UpdateMalformed(f"Byte {reader.at - 1} gives a gap an origin or a key.")
    origin = _struct_id(reader) if info & _HAS_ORIGIN else None
    right_origin = _struct_id(reader) if info & _HAS_RIGHT_ORIGIN else None
    root = parent = key = None
    if not bare and origin is None and right_origin is None:
        match reader.varuint():
            case 1:
                root = reader.text()
            case 0:
                parent = _struct_id(reader)
            case _:
                raise UpdateMalformed(f"The parent before byte {reader.at} is of an unknown form.")
        key = reader.text() if info & _HAS_KEY else None
    start = reader.at
    length = _CONTENT_READERS[content](reader)
    content_bytes = reader.data[start : reader.at]
    return Struct(name, length, content, content_bytes, origin, right_origin, root, parent, key)


def _deletions(reader: Reader) -> Iterable[Deletion]:
    clients: set[int] = set()
    for _ in range(reader.varuint()):
        client = reader.varuint()
        if client in clients:
            raise UpdateMalformed(f"Client {client} has two lists of deletions.")
        clients.add(client)
        end = 0
        for _ in range(reader.length()):
            deletion = Deletion(StructId(client, reader.varuint()), reader.length())
            _check_end(deletion.id, deletion.length)
            if deletion.id.clock < end:
                raise UpdateMalformed(f"The deletions of client {client} are not ascending.")
            end = deletion.id.clock + deletion.length
            yield deletion


# Each reader skips one content and returns its number of clocks.


def _strings(reader: Reader) -> int:
    count = reader.length()
    for _ in range(count):
        reader.text()
    return count


def _bytes(reader: Reader) -> int:
    reader.read(reader.varuint())
    return 1


def _string(reader: Reader) -> int:
    units = len(reader.text().encode("utf-16-le")) // 2
    if not units:
        raise UpdateMalformed(f"A string before byte {reader.at} is empty.")
    return units


def _one_text(reader: Reader) -> int:
    reader.text()
    return 1


def _two_texts(reader: Reader) -> int:
    reader.text()
    reader.text()
    return 1


def _type(reader: Reader) -> int:
    kind = reader.varuint()
    if kind > _TYPE_MAX:
        raise UpdateMalformed(f"Shared type {kind} is not known.")
    if kind in (_XML_ELEMENT, _XML_HOOK):
        reader.text()
    return 1


def _values(reader: Reader) -> int:
    count = reader.length()
    for _ in range(count):
        pass_value(reader)
    return count


def _doc(reader: Reader) -> int:
    reader.text()
    pass_value(reader)
    return 1


_CONTENT_READERS: Mapping[Content, Callable[[Reader], int]] = {
    Content.GC: Reader.length,
    Content.DELETED: Reader.length,
    Content.JSON: _strings,
    Content.BINARY: _bytes,
    Content.STRING: _string,
    Content.EMBED: _one_text,
    Content.FORMAT: _two_texts,
    Content.TYPE: _type,
    Content.ANY: _values,
    Content.DOC: _doc,
    Content.SKIP: Reader.length,
}
