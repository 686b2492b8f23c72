"""bundle.json: a conversation in one file, and files that break one rule (spec/02-entry §8)."""

from spec.vectors.make.admission_log import ADA, BOB, admission_log
from spec.vectors.make.build import MESSAGE, Built, NamedLog, message, one_field, said, sha256

MAGIC = b"antiphon/v1/bundle\r\n"
BLOBS = (b"a picture", b"")


def _record(kind: int, content: bytes, length: int | None = None) -> bytes:
    size = len(content) if length is None else length
    return bytes([kind]) + size.to_bytes(8, "little") + content


def _entry(entry: Built, **changed: bytes) -> bytes:
    parts = {"header": entry.header_bytes, "signature": entry.signature, **changed}
    fields = [one_field(1, parts["header"]), one_field(2, parts["signature"])]
    body = changed.get("body", entry.body)
    return b"".join(fields) + (b"" if body is None else one_field(3, body))


def _draft(number: int = 2) -> bytes:
    return _record(4, number.to_bytes(8, "little"))


def _blob(data: bytes) -> bytes:
    return _record(2, sha256(data) + data)


def _end(entries: int, blobs: int) -> bytes:
    return _record(3, entries.to_bytes(8, "little") + blobs.to_bytes(8, "little"))


def _file(*records: bytes, magic: bytes = MAGIC) -> bytes:
    data = magic + b"".join(records)
    return data + sha256(data)


class _Bundles:
    def __init__(self) -> None:
        self.log = admission_log()
        self.log.write("bare", BOB, MESSAGE, said("gone"), parents=["reply"])
        entries = self.log.entries.items()
        self.sorted = [n for n, e in sorted(entries, key=lambda i: (i[1].header.lamport, i[1].id))]
        self.vectors: list[dict[str, object]] = []

    def records(self, *names: str) -> list[bytes]:
        entries = self.log.entries
        return [_record(1, _entry(entries[n])) for n in names or self.sorted]

    def add(
        self, name: str, comment: str, data: bytes, reason: str | None, **found: object
    ) -> None:
        self.vectors.append(
            {
                "name": name,
                "comment": comment,
                "bytes": data.hex(),
                "reason": reason,
                "entries": found.get("entries"),
                "blobs": found.get("blobs"),
            }
        )

    def whole(
        self, name: str, comment: str, data: bytes, entries: list[str], *blobs: bytes
    ) -> None:
        ids = [self.log.entries[n].id.hex() for n in entries]
        digests = sorted(sha256(blob).hex() for blob in blobs)
        self.add(name, comment, data, None, entries=ids, blobs=digests)

    def broken(self, name: str, comment: str, data: bytes) -> None:
        self.add(name, comment, data, "BUNDLE_INVALID")


def _whole(b: _Bundles) -> None:
    n, first = len(b.sorted), ["genesis"]
    blobs = [_blob(blob) for blob in BLOBS]
    b.whole(
        "whole",
        "entries by (lamport, id), two blobs, one of them empty",
        _file(_draft(), *b.records(), *blobs, _end(n, 2)),
        b.sorted,
        *BLOBS,
    )
    b.whole(
        "blobs-turned",
        "blobs come in any order",
        _file(_draft(), *b.records(), *blobs[::-1], _end(n, 2)),
        b.sorted,
        *BLOBS,
    )
    b.whole(
        "genesis-alone",
        "a genesis is enough",
        _file(_draft(), *b.records("genesis"), _end(1, 0)),
        first,
    )
    bare = [
        _record(1, _entry(e, body=None) if n == "bare" else _entry(e))  # type: ignore[arg-type]
        for n, e in ((n, b.log.entries[n]) for n in b.sorted)
    ]
    b.whole("bodiless", "a body may be absent", _file(_draft(), *bare, _end(n, 0)), b.sorted)
    forged = _entry(b.log.entries["reply"], signature=bytes(64))
    some = [
        _record(1, forged) if n == "reply" else _record(1, _entry(b.log.entries[n]))
        for n in b.sorted
    ]
    b.whole("unsigned", "signatures are checked by admission, not by the reader of a file",
            _file(_draft(), *some, _end(n, 0)), b.sorted)  # fmt: skip
    newer = [
        _record(1, one_field(3, e.body) + one_field(9, b"new") + _entry(e, body=None))  # type: ignore[arg-type]
        for e in (b.log.entries[n] for n in b.sorted)
        if e.body is not None
    ]
    b.whole("message-turned", "headers and bodies are in the strict subset, messages of entries"
            " need not be: fields in another order, and one of a later version",
            _file(_draft(), *newer, _end(n, 0)), b.sorted)  # fmt: skip
    apart = [n for n in b.sorted if n != "reply"]
    b.whole("incomplete", "so is whether all ancestors are there",
            _file(_draft(), *b.records(*apart), _end(n - 1, 0)), apart)  # fmt: skip


def _frames(b: _Bundles) -> None:
    n, records = len(b.sorted), b.records()
    good = _file(_draft(), *records, _end(n, 0))
    b.broken("empty", "no bytes", b"")
    b.broken(
        "magic-line-end",
        "a transfer changed the line end",
        _file(_draft(), *records, _end(n, 0), magic=b"antiphon/v1/bundle\n\n"),
    )
    b.broken("digest", "one bit of the last 32 bytes changed", good[:-1] + bytes([good[-1] ^ 1]))
    b.broken("cut-off", "the last byte is missing", good[:-1])
    b.broken("no-end", "no end record", _file(_draft(), *records))
    b.broken("genesis-none", "one entry, and it is no genesis",
             _file(_draft(), *b.records("grant-bob"), _end(1, 0)))  # fmt: skip
    b.broken(
        "behind-end",
        "a record follows the end record",
        _file(_draft(), *records, _end(n, 0), _blob(b"x")),
    )
    b.broken(
        "byte-behind-end",
        "a byte follows the end record",
        _file(_draft(), *records, _end(n, 0), b"\0"),
    )
    b.broken(
        "length-beyond",
        "a record longer than the file",
        _file(_draft(), *records, _record(3, bytes(16), 1 << 32)),
    )
    b.broken(
        "header-cut",
        "the file ends inside the head of a record",
        _file(_draft(), *records, b"\x03" + bytes(7)),
    )
    b.broken(
        "type-unknown", "a record of type 5", _file(_draft(), *records, _record(5, b""), _end(n, 0))
    )
    b.broken(
        "draft-later",
        "the draft number again behind the entries",
        _file(_draft(), *records, _draft(), _end(n, 0)),
    )
    b.broken(
        "draft-short",
        "a draft number of 7 bytes",
        _file(_record(4, b"\2" + bytes(6)), *records, _end(n, 0)),
    )
    b.broken(
        "draft-other-damaged",
        "of another draft, and not whole",
        _file(_draft(3), *records, _end(n, 0))[:-1] + b"\0",
    )
    for name, comment, end in (
        ("entries-more", "counts an entry more", _end(n + 1, 0)),
        ("blobs-more", "counts a blob more", _end(n, 1)),
        ("end-short", "an end record of 8 bytes", _record(3, n.to_bytes(8, "little"))),
    ):
        b.broken(name, comment, _file(_draft(), *records, end))
    b.broken("nothing", "no entries", _file(_draft(), _end(0, 0)))  # fmt: skip
    b.broken("no-records", "nothing but magic and digest", _file())


def _contents(b: _Bundles) -> None:
    n, records = len(b.sorted), b.records()
    swapped = [b.sorted[0], b.sorted[2], b.sorted[1], *b.sorted[3:]]
    b.broken(
        "order",
        "two entries of different lamports swapped",
        _file(_draft(), *b.records(*swapped), _end(n, 0)),
    )
    twice = [*b.sorted, b.sorted[-1]]
    b.broken("twice", "the last entry twice", _file(_draft(), *b.records(*twice), _end(n + 1, 0)))
    b.broken(
        "no-genesis",
        "the first entry is no genesis",
        _file(_draft(), *b.records(*b.sorted[1:]), _end(n - 1, 0)),
    )
    other = NamedLog((ADA, BOB))
    other.write("stray", BOB, MESSAGE, said("x"))
    stray = replace_lamport(other, 90)
    b.broken(
        "conversation",
        "an entry of another conversation",
        _file(_draft(), *records, _record(1, _entry(stray)), _end(n + 1, 0)),
    )
    last = b.log.entries[b.sorted[-1]]
    assert last.body is not None
    b.broken(
        "body",
        "a body that has not its digest",
        _file(
            _draft(),
            *records[:-1],
            _record(1, _entry(last, body=last.body[:-1] + b"\xff")),
            _end(n, 0),
        ),
    )
    short = message({**last.header.fields(), 13: len(last.body) - 1})
    b.broken("body-bytes", "a body that has its digest, and not the size stated",
             _file(_draft(), *records[:-1], _record(1, _entry(last, header=short)),
                   _end(n, 0)))  # fmt: skip
    b.broken("body-empty", "a body without bytes is not an absent one",
             _file(_draft(), *records[:-1], _record(1, _entry(last, body=b"")),
                   _end(n, 0)))  # fmt: skip
    first, second = sorted((b.log.entries["genesis"], other.entries["genesis"]), key=lambda e: e.id)
    b.broken("genesis-second", "a second genesis, in order: an entry of another conversation",
             _file(_draft(), *(_record(1, _entry(e)) for e in (first, second)),
                   _end(2, 0)))  # fmt: skip
    b.broken(
        "header",
        "a header outside the strict subset",
        _file(_draft(), *records, _record(1, _entry(last, header=b"\x90\x00\x05")), _end(n + 1, 0)),
    )
    b.broken(
        "no-entry",
        "a record of type 1 that is no Entry",
        _file(_draft(), *records, _record(1, b"\x0a\x05x"), _end(n + 1, 0)),
    )


def _blobs_and_drafts(b: _Bundles) -> None:
    n, records = len(b.sorted), b.records()
    b.broken(
        "blob-digest",
        "a blob that has not its digest",
        _file(_draft(), *records, _record(2, sha256(b"x") + b"y"), _end(n, 1)),
    )
    b.broken(
        "blob-short",
        "a blob record shorter than a digest",
        _file(_draft(), *records, _record(2, sha256(b"")[:31]), _end(n, 1)),
    )
    b.broken(
        "blob-twice-counted-once",
        "a blob twice, and counted once",
        _file(_draft(), *records, _blob(b"x"), _blob(b"x"), _end(n, 1)),
    )
    b.broken(
        "blob-twice",
        "a blob twice",
        _file(_draft(), *records, _blob(b"x"), _blob(b"x"), _end(n, 2)),
    )
    b.broken("blob-first", "a blob before an entry",
             _file(_draft(), *records[:-1], _blob(b"x"), records[-1], _end(n, 1)))  # fmt: skip
    for name, comment, draft in (
        ("draft-none", "without a draft number: draft 1", b""),
        ("draft-one", "draft 1 spelled out", _draft(1)),
        ("draft-three", "a later draft", _draft(3)),
    ):
        b.add(name, comment, _file(draft, *records, _end(n, 0)), "DRAFT_UNKNOWN")
    b.add("draft-three-odd", "a later draft, with a record of a type unknown here",
          _file(_draft(3), _record(9, b"x"), _end(n, 0)), "DRAFT_UNKNOWN")  # fmt: skip
    b.add("draft-three-open", "a later draft, and no end record: what follows is not read",
          _file(_draft(3), b"\1\2"), "DRAFT_UNKNOWN")  # fmt: skip


def replace_lamport(log: NamedLog, lamport: int) -> Built:
    """Return the entry `stray` of another conversation, late in any order."""
    return log.changed("stray", BOB, lamport=lamport)


def build() -> dict[str, object]:
    """Return the file."""
    bundles = _Bundles()
    for part in (_whole, _frames, _contents, _blobs_and_drafts):
        part(bundles)
    return {
        "file": "bundle",
        "spec": "spec/02-entry §8",
        "comment": "Read `bytes` as a bundle. `reason` null: its entries in order, and the digests"
        " of its blobs, sorted.",
        "rules": [
            "A file is whole if it begins with the magic and ends with the digest of all before."
            " Of a whole file the first record alone tells the draft: with another number than 2,"
            " or another type than 4, it is DRAFT_UNKNOWN, and nothing behind it is looked at."
            " Without a first record, or with one that is longer than the file or a draft number"
            " of another length than 8 bytes, the file is BUNDLE_INVALID.",
            "The record of an entry has at most 1,048,576 bytes.",
        ],
        "vectors": bundles.vectors,
    }
