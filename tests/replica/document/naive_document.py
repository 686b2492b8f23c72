"""The document without pycrdt, strands or client numbers: the slow twin of the projection.

Ancestors are sets, found by walking; a key's history is a list, ordered by the
YATA rule with (lamport, id) in place of client ids.
"""

import struct
from collections.abc import Iterable
from typing import Any

from replica.document.projection import Update, client_id, entry_client
from replica.document.yjs import Content, DecodedUpdate, StructId, decode_update
from replica.errors import EntryRefused
from replica.ids import EntryId

Clock = tuple[tuple[int, EntryId], int]  # ((lamport, id), clock): the entry's position in the order


class Refused(Exception):
    """A name in the update has no meaning, or two."""


def naive_document(updates: Iterable[Update]) -> tuple[dict[str, dict[str, Any]], set[EntryId]]:
    """Return root → key → value, and the void entries."""
    entries = {update.id: update for update in updates}
    valid: dict[EntryId, DecodedUpdate] = {}
    history: dict[tuple[str, str], list[tuple[Clock, Clock | None]]] = {}
    slot: dict[Clock, tuple[str, str]] = {}
    value: dict[Clock, Any] = {}
    deleted: set[Clock] = set()
    for update in sorted(entries.values(), key=lambda update: update.order):
        closure = ancestors(update, entries)
        try:
            decoded = decode_update(update.update)
            naive_rules(decoded, client_id(update.lane))
            origins = [
                item.origin and clock_of(item.origin, item.id.clock, update, closure, valid)
                for item in decoded.structs
            ]
            gone = {
                clock_of(StructId(run.id.client, clock), own_size(decoded), update, closure, valid)
                for run in decoded.deletions
                for clock in range(run.id.clock, run.id.clock + run.length)
            }
        except (EntryRefused, Refused):
            continue
        valid[update.id] = decoded
        deleted |= gone
        for item, origin in zip(decoded.structs, origins, strict=True):
            left = origin
            for offset in range(item.length):
                clock = (update.order, item.id.clock + offset)
                slot[clock] = slot[left] if left else (item.root or "", item.key or "")
                if item.content is Content.DELETED:
                    deleted.add(clock)
                else:
                    value[clock] = decoded_any(bytearray(item.content_bytes[1:]))
                integrate(history.setdefault(slot[clock], []), clock, left)
                left = clock
    document: dict[str, dict[str, Any]] = {"meta": {}, "branches": {}, "annotations": {}}
    for (root, key), order in history.items():
        last = order[-1][0]
        if last not in deleted:
            document[root][key] = value[last]
    return document, entries.keys() - valid.keys()


def ancestors(update: Update, entries: dict[EntryId, Update]) -> dict[EntryId, Update]:
    found: dict[EntryId, Update] = {}
    todo = list(update.follows)
    while todo:
        entry = entries[todo.pop()]
        if entry.id not in found:
            found[entry.id] = entry
            todo += entry.follows
    return found


def own_size(decoded: DecodedUpdate) -> int:
    return sum(item.length for item in decoded.structs)


def naive_rules(decoded: DecodedUpdate, client: int) -> None:
    clock = 0
    for item in decoded.structs:
        plain = item.content in (Content.ANY, Content.DELETED)
        plain = plain and (item.content is Content.DELETED or item.length == 1)
        plain = plain and item.right_origin is None and item.parent is None
        rooted = item.origin is not None or (
            item.root in ("meta", "branches", "annotations") and item.key is not None
        )
        if item.id != (client, clock) or not plain or not rooted:
            raise Refused
        clock += item.length
    if clock > 65_536:
        raise Refused


def clock_of(
    name: StructId,
    own_clocks: int,
    update: Update,
    closure: dict[EntryId, Update],
    valid: dict[EntryId, DecodedUpdate],
) -> Clock:
    if name.client == client_id(update.lane):
        if name.clock >= own_clocks:
            raise Refused
        return update.order, name.clock
    named = [
        entry
        for entry in closure.values()
        if entry.id in valid and own_size(valid[entry.id]) and entry_client(entry.id) == name.client
    ]
    if len(named) != 1 or name.clock >= own_size(valid[named[0].id]):
        raise Refused
    return named[0].order, name.clock


def integrate(order: list[tuple[Clock, Clock | None]], new: Clock, origin: Clock | None) -> None:
    clocks = [clock for clock, _ in order]
    left = clocks.index(origin) if origin else -1
    passed: set[Clock] = set()
    conflicting: set[Clock] = set()
    for at in range(left + 1, len(order)):
        other, other_origin = order[at]
        passed.add(other)
        conflicting.add(other)
        if other_origin == origin:
            if other[0] >= new[0]:
                break
            left = at
            conflicting.clear()
        elif other_origin in passed:
            if other_origin not in conflicting:
                left = at
                conflicting.clear()
        else:
            break
    order.insert(left + 1, (new, origin))


def decoded_any(data: bytearray) -> Any:
    kind = data.pop(0)
    if kind in (126, 121, 120):
        return {126: None, 121: False, 120: True}[kind]
    if kind in (124, 123):
        size, form = (4, ">f") if kind == 124 else (8, ">d")
        number = struct.unpack(form, read(data, size))[0]
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    if kind == 125:
        return signed(data)
    if kind == 119:
        return read(data, unsigned(data)).decode()
    count = unsigned(data)
    if kind == 117:
        return [decoded_any(data) for _ in range(count)]
    pairs = ((read(data, unsigned(data)).decode(), decoded_any(data)) for _ in range(count))
    return dict(pairs)


def read(data: bytearray, size: int) -> bytes:
    taken = bytes(data[:size])
    del data[:size]
    return taken


def unsigned(data: bytearray) -> int:
    value = shift = 0
    while True:
        byte = data.pop(0)
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value


def signed(data: bytearray) -> int:
    first = data.pop(0)
    rest = unsigned(data) if first & 0x80 else 0
    size = (first & 0x3F) | rest << 6
    return -size if first & 0x40 else size
