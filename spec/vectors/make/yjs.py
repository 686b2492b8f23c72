"""Yjs v1 updates by hand, and the entries of a document track by label (spec/06-document)."""

import hashlib
import json

from spec.vectors.make.build import pae, sha256

Json = dict[str, object]
Name = tuple[int, int]
"""A client id and a clock."""
EMPTY = b"\x00\x00"
SEAL_HEX = "5e" * 32


def number(value: int) -> bytes:
    """Encode an unsigned integer, lowest 7 bits first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def text(value: str | bytes) -> bytes:
    """Encode a string: its size in bytes, then its bytes."""
    data = value if isinstance(value, bytes) else value.encode()
    return number(len(data)) + data


def string(value: str) -> bytes:
    """Encode a string as a value."""
    return b"\x77" + text(value)


def integer(value: int) -> bytes:
    """Encode an integer as a value: the sign in bit 6, 6 bits in the first byte."""
    sign, size = (0x40, -value) if value < 0 else (0, value)
    rest = size >> 6
    first = bytes([sign | size & 0x3F | (0x80 if rest else 0)])
    return b"\x7d" + first + (number(rest) if rest else b"")


def client_of(author: int) -> int:
    """Return the client id of a lane of the document track, in epoch 7."""
    lane = bytes([author]) * 32 + (7).to_bytes(8, "little") + b"\x02"
    return client(sha256(pae("antiphon/v1/document-client", lane)))


def client(entry_id: bytes) -> int:
    """Return 53 bits of a digest or an id."""
    return int.from_bytes(entry_id[:8], "little") >> 11


def put(
    root: str | None,
    key: str | None,
    value: bytes,
    *,
    origin: Name | None = None,
    right: Name | None = None,
    parent: Name | None = None,
    content: int = 8,
    count: int | None = 1,
) -> bytes:
    """Encode one struct; the key of one with an origin is left out."""
    flags = content | (0x80 if origin else 0) | (0x40 if right else 0)
    where = b"".join(number(n) for name in (origin, right) if name for n in name)
    if not (origin or right):
        if parent:
            where += b"\x00" + number(parent[0]) + number(parent[1])
        else:
            where += b"\x01" + text(root or "")
        if key is not None:
            flags |= 0x20
            where += text(key)
    return bytes([flags]) + where + (b"" if count is None else number(count)) + value


def gone(root: str, key: str, length: int = 1, origin: Name | None = None) -> bytes:
    """Encode a run of structs that are deleted already."""
    return put(root, key, number(length), origin=origin, content=1, count=None)


def section(owner: int, structs: list[bytes], clock: int = 0) -> bytes:
    """Encode the structs of one client."""
    return number(len(structs)) + number(owner) + number(clock) + b"".join(structs)


def deleted(owner: int, *runs: Name) -> bytes:
    """Encode the deletions of one client: pairs of clock and length."""
    return number(owner) + number(len(runs)) + b"".join(number(a) + number(n) for a, n in runs)


def update(sections: list[bytes], deletions: list[bytes] | None = None) -> bytes:
    """Encode an update."""
    ends = deletions or []
    return number(len(sections)) + b"".join(sections) + number(len(ends)) + b"".join(ends)


def meta(*values: bytes) -> bytes:
    """Set keys a, b, … of meta in a lane of author 1."""
    return update(
        [section(client_of(1), [put("meta", "abcdefgh"[i], v) for i, v in enumerate(values)])]
    )


class Story:
    """One track: entries by label, in the order they were written."""

    def __init__(self) -> None:
        self.entries: dict[str, Json] = {}
        self._add("genesis", (bytes(32), 0, 0), 0, None, [], 0, EMPTY)

    def _add(
        self, label: str, lane: tuple[bytes, int, int], seq: int, prev: str | None,
        parents: list[str], lamport: int, data: bytes, entry_id: bytes | None = None,
    ) -> None:  # fmt: skip
        author, epoch, track = lane
        self.entries[label] = {
            "id": (entry_id or hashlib.sha256(label.encode()).digest()).hex(),
            "author": author.hex(),
            "epoch": str(epoch),
            "track": track,
            "seq": seq,
            "prev": self.entries[prev]["id"] if prev else None,
            "parents": sorted(str(self.entries[p]["id"]) for p in parents),
            "lamport": lamport,
            "update": data.hex(),
        }

    def add(
        self,
        label: str,
        data: bytes,
        *,
        by: int = 1,
        on: str = "genesis",
        prev: str | None = None,
        epoch: int = 7,
        entry_id: bytes | None = None,
    ) -> None:
        """Write an entry that follows those of `on`."""
        before = self.entries[prev] if prev else None
        named = [self.entries[p] for p in on.split()] + ([before] if before else [])
        lamport = 1 + max(int(str(e["lamport"])) for e in named)
        seq = int(str(before["seq"])) + 1 if before else 0
        lane = bytes([by]) * 32, epoch, 2
        self._add(label, lane, seq, prev, on.split(), lamport, data, entry_id)

    def name(self, label: str, clock: int = 0) -> Name:
        """Return the name by which descendants name a struct of an entry."""
        return client(bytes.fromhex(str(self.entries[label]["id"]))), clock

    def later(self, *labels: str) -> str:
        """Return the entry that is last in the order (lamport, id)."""
        return max(labels, key=lambda n: (self.entries[n]["lamport"], self.entries[n]["id"]))

    def vector(
        self,
        name: str,
        requirement: str,
        comment: str,
        *,
        void: dict[str, str] | None = None,
        left_out: str = "",
        canonical: str = "",
        **roots: object,
    ) -> Json:
        """Return the vector of the roots that are not empty; `canonical` where json differs."""
        entries = [e for label, e in self.entries.items() if label != left_out]
        case: Json = {"name": name, "requirement": requirement, "comment": comment}
        if left_out:
            return case | {"entries": entries, "refused": "DOCUMENT_NOT_CAUSAL"}
        found = {root: roots.get(root, {}) for root in ("annotations", "branches", "meta")}
        plain = json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        data = canonical or plain
        return case | {
            "entries": entries,
            "void": {str(self.entries[n]["id"]): reason for n, reason in (void or {}).items()},
            "projection": found,
            "digest": sha256(pae("antiphon/v1/projection", data.encode())).hex(),
        }
