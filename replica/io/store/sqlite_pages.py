"""Records of SQLite pages, read one page at a time (sqlite.org/fileformat.html).

For files that SQLite itself refuses: neither the header nor the tree of a database
is used, and no checksum of a WAL. The reader of the records must verify them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE_BYTES = 4096
"""SQLite's default, which the store never changes."""

_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER = 0x0D, 0x0A, 0x02
_HEADER_BYTES = {_TABLE_LEAF: 8, _INDEX_LEAF: 8, _INDEX_INNER: 12}
_FILE_HEADER_BYTES, _WAL_HEADER_BYTES, _FRAME_BYTES = 100, 32, 24
_CELLS_MAX = PAGE_BYTES // 4
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8, 8)

Record = list[Any]


class Pages:
    """The pages of a database and its WALs; of each number, the oldest version first."""

    def __init__(self) -> None:
        """Start empty."""
        self._versions: dict[int, list[bytes]] = {}
        self._added: list[tuple[int, bytes]] = []
        """All versions with their numbers, in the order in which they were written."""

    def add_database(self, path: Path) -> None:
        """Add the pages of a database file, before those of its WALs. Raises OSError."""
        data = path.read_bytes()
        for number, at in enumerate(range(0, len(data), PAGE_BYTES), 1):
            self._add(number, data[at : at + PAGE_BYTES])

    def add_wal(self, path: Path) -> None:
        """Add the pages in the frames of a WAL, after a damaged frame too. Raises OSError."""
        data = path.read_bytes()
        step = _FRAME_BYTES + PAGE_BYTES
        starts = range(_WAL_HEADER_BYTES, len(data) - step + 1, step)
        current = [at for at in starts if data[at + 8 : at + 16] == data[16:24]]
        # A frame of another salt is of an earlier use of the file.
        for at in current or starts:
            number = int.from_bytes(data[at : at + 4])
            self._add(number, data[at + _FRAME_BYTES : at + step])

    def _add(self, number: int, page: bytes) -> None:
        self._versions.setdefault(number, []).append(page)
        self._added.append((number, page))

    def records(self) -> Iterator[Record]:
        """Yield the columns of every row that can be read, rows of earlier versions too.

        A row that was changed is among several pages; its latest version comes last.
        """
        for number, page in self._added:
            start = _FILE_HEADER_BYTES if number == 1 else 0
            for newest in (True, False):
                yield from self._page_records(page, start, newest=newest)

    def _page_records(self, page: bytes, start: int, *, newest: bool) -> Iterator[Record]:
        kind = page[start] if len(page) == PAGE_BYTES else 0
        if kind not in _HEADER_BYTES:
            return
        count = int.from_bytes(page[start + 3 : start + 5])
        pointers = start + _HEADER_BYTES[kind]
        for index in range(min(count, _CELLS_MAX)):
            at = int.from_bytes(page[pointers + 2 * index : pointers + 2 * index + 2])
            try:
                yield _columns(self._payload(page, at, kind, newest=newest))
            except (IndexError, ValueError):
                continue  # a damaged cell

    def _payload(self, page: bytes, at: int, kind: int, *, newest: bool) -> bytes:
        """Return the payload of a cell, with its overflow pages. Raises IndexError, ValueError."""
        size, at = _varint(page, at + (4 if kind == _INDEX_INNER else 0))
        if kind == _TABLE_LEAF:
            _, at = _varint(page, at)
        local = _local_bytes(size, is_table=kind == _TABLE_LEAF)
        payload = page[at : at + local]
        follow = int.from_bytes(page[at + local : at + local + 4]) if local < size else 0
        while len(payload) < size:
            versions = self._versions.get(follow)
            if not versions:
                raise ValueError("an overflow page is missing")
            part = versions[-1 if newest else 0]
            payload += part[4 : 4 + size - len(payload)]
            follow = int.from_bytes(part[:4])
            if len(part) <= 4:
                raise ValueError("an overflow page is cut off")
        return payload


def _local_bytes(size: int, *, is_table: bool) -> int:
    """Return the bytes of a payload that are in the cell's own page."""
    largest = PAGE_BYTES - 35 if is_table else (PAGE_BYTES - 12) * 64 // 255 - 23
    if size <= largest:
        return size
    least = (PAGE_BYTES - 12) * 32 // 255 - 23
    local = least + (size - least) % (PAGE_BYTES - 4)
    return local if local <= largest else least


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(9):
        byte = data[at + index]
        if index == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + index + 1
    raise AssertionError("the ninth byte is the last")


def _columns(payload: bytes) -> Record:
    """Return the values of a record. Raises IndexError, ValueError."""
    end, at = _varint(payload, 0)
    if end > len(payload):
        raise ValueError("the header of a record is cut off")
    kinds = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    columns: Record = []
    for kind in kinds:
        value, end = _value(payload, end, kind)
        columns.append(value)
    return columns


def _value(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (8, 9):
        return kind - 8, at
    if kind in (10, 11):
        raise ValueError("no record has this type")
    size = (kind - 12) // 2 if kind >= 12 else _INTEGER_BYTES[kind]
    data = payload[at : at + size]
    if len(data) < size:
        raise ValueError("a record is cut off")
    if kind >= 12:
        return (data.decode(errors="replace") if kind % 2 else data), at + size
    return (int.from_bytes(data, signed=True) if kind else None), at + size
