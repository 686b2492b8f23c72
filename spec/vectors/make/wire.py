"""wire.json: byte strings inside and outside the strict subset, one rule broken each."""

from spec.vectors.make import wire_more
from spec.vectors.make.build import Fixed, Key, grant, message, one_field, varint

KEY = Key("ada").public
ID = bytes(range(32))
FLOAT = varint(1 << 3 | 5) + b"\x00\x00\x80\xbf"


def _header(**extra: bytes) -> bytes:
    """Return a header's first fields, with named pieces in place of the correct ones."""
    pieces = {
        "conversation": one_field(1, ID),
        "author": one_field(2, KEY),
        "epoch": one_field(3, Fixed(1)),
        "track": one_field(4, 1),
        "seq": one_field(5, 5),
        **extra,
    }
    return b"".join(pieces.values())


def _revocation(cut: bytes) -> bytes:
    return one_field(2, one_field(1, KEY) + one_field(2, cut))


def _nested(depth: int) -> bytes:
    """Nest unknown content; unknown fields are not parsed."""
    data = b""
    for _ in range(depth):
        data = one_field(30, data or b"x")
    return data


def _valid() -> list[tuple[str, str, str, bytes]]:
    return [
        ("empty", "Header", "no fields at all: the fields are checked elsewhere", b""),
        ("plain", "Header", "ascending fields, minimal varints", _header()),
        ("unknown", "Header", "an unknown field after the known ones", _header(x=one_field(99, 1))),
        (
            "unknown-repeated",
            "Header",
            "an unknown field may repeat, and hold its default",
            _header(x=one_field(99, 0) + one_field(99, b"")),
        ),
        ("repeated", "Header", "parents repeat", _header(x=one_field(7, ID) + one_field(7, ID))),
        ("uint64", "Header", "the greatest varint", _header(seq=one_field(5, 2**64 - 1))),
        ("enum", "Header", "the greatest enum number", _header(x=one_field(10, 2**31 - 1))),
        ("packed", "Seal", "tokens_per_entry, packed", one_field(7, b"\x00\x05\xac\x02")),
        ("float", "TokenLogprobs", "a float has 4 bytes", FLOAT),
        ("packed-float", "TokenLogprobs", "floats, packed", one_field(3, bytes(8))),
        ("oneof", "Member", "one member of the oneof", grant(Key("bob"), 2)),
        ("oneof-text", "Request", "a text of the oneof", one_field(1, KEY) + one_field(14, b"x")),
        ("oneof-empty", "Member", "a chosen message may be empty", one_field(1, b"")),
        ("message-empty", "Genesis", "so may any message that is there", one_field(2, b"")),
        ("unknown-deep", "Header", "unknown content is not looked into", _header(x=_nested(40))),
        (
            "double",
            "Genesis",
            "a double is fixed64",
            one_field(2, one_field(1, Fixed(0x3FF << 52))),
        ),
    ]


def _broken() -> list[tuple[str, str, str, bytes]]:
    overlong_tag = bytes([0x90 | 0x08, 0x00, 0x05])
    return [
        ("varint-minimal", "Header", "90 00 05: a key of two bytes where one will do",
         b"\x90\x00\x05"),
        ("varint-minimal", "Header", "a value with a superfluous byte",
         _header(seq=varint(5 << 3) + b"\x85\x00")),
        ("varint-minimal", "Header", "an overlong key of a later field", _header(x=overlong_tag)),
        ("varint-minimal", "Header", "an overlong length",
         _header(x=varint(12 << 3 | 2) + b"\xa0\x00" + ID)),
        ("varint-64-bits", "Header", "2^64",
         _header(seq=varint(5 << 3) + b"\x80" * 9 + b"\x02")),
        ("varint-10-bytes", "Header", "eleven bytes",
         _header(seq=varint(5 << 3) + b"\x80" * 10 + b"\x01")),
        ("varint-cut-off", "Header", "ends inside a varint", _header() + b"\x80"),
        ("varint-cut-off", "Header", "ends after a key", _header() + varint(9 << 3)),
        ("field-number", "Header", "field 0", b"\x00\x01"),
        ("field-number", "Header", "field 2^29", varint(2**29 << 3) + b"\x01"),
        ("ascending", "Header", "epoch before author",
         _header(author=one_field(3, Fixed(1)), epoch=one_field(2, KEY))),
        ("ascending", "Header", "an unknown field before a known one",
         one_field(99, 1) + _header()),
        ("once", "Header", "seq twice", _header(seq=one_field(5, 5) * 2)),
        ("once", "Seal", "packed numbers in two pieces", one_field(7, b"\x05") * 2),
        ("default", "Header", "seq 0 spelled out", _header(seq=one_field(5, 0))),
        ("default", "Header", "epoch 0 spelled out", _header(epoch=one_field(3, Fixed(0)))),
        ("default", "Header", "prev spelled out as empty", _header(x=one_field(6, b""))),
        ("default", "Member", "a cut's seq 0 spelled out", _revocation(one_field(3, 0))),
        ("wire-type", "Header", "seq as fixed64", _header(seq=one_field(5, Fixed(5)))),
        ("wire-type", "Header", "epoch as varint", _header(epoch=one_field(3, 1))),
        ("wire-type", "Header", "author as varint", _header(author=one_field(2, 1))),
        ("wire-type", "Seal", "tokens_per_entry not packed", one_field(7, 5)),
        ("wire-type", "Header", "wire type 6 does not exist", _header(x=varint(99 << 3 | 6))),
        ("group", "Header", "an unknown group",
         _header(x=varint(99 << 3 | 3) + varint(99 << 3 | 4))),
        ("group", "Header", "an end without a start", _header(x=varint(99 << 3 | 4))),
        ("cut-off", "Header", "bytes shorter than their length", _header() + b"\x32\x20" + ID[:31]),
        ("cut-off", "Header", "fixed64 of seven bytes", _header(epoch=b"\x19" + bytes(7))[:75]),
        ("cut-off", "Header", "unknown fixed32 of three bytes",
         _header(x=varint(99 << 3 | 5) + b"\x01\x01\x01")),
        ("cut-off", "TokenLogprobs", "a packed float of three bytes", one_field(3, bytes(7))),
        ("default", "TokenLogprobs", "a float 0 spelled out", FLOAT[:1] + bytes(4)),
        ("range", "Header", "critical 2", _header(x=one_field(11, 2))),
        ("range", "Header", "body_bytes 2^32", _header(x=one_field(13, 2**32))),
        ("range", "Header", "kind 2^31: a negative number to some parsers",
         _header(x=one_field(10, 2**31))),
        ("range", "Header", "kind -1 in ten bytes", _header(x=one_field(10, 2**64 - 1))),
        ("range", "Seal", "a packed number of 33 bits", one_field(7, varint(2**32))),
        ("packed-empty", "Seal", "packs nothing", one_field(7, b"")),
        ("packed-empty", "TokenLogprobs", "packs no float", one_field(3, b"")),
        ("oneof-once", "Member", "a grant and a revocation",
         grant(Key("bob"), 2) + one_field(2, message({1: KEY}))),
        ("oneof-once", "Request", "a schema and a regular expression",
         one_field(1, KEY) + one_field(12, b"{}") + one_field(13, b"a")),
        ("default", "Request", "tool_choice AUTO spelled out",
         one_field(1, KEY) + one_field(15, 0)),
        ("nested", "Member", "the rule holds inside messages", one_field(1, one_field(2, 2)[:1])),
        ("utf-8", "Request", "a stop string that is not UTF-8",
         one_field(1, KEY) + one_field(5, b"\xc3\x28")),
    ]  # fmt: skip


def build() -> dict[str, object]:
    """Return the file."""
    valid = [
        {"name": name, "message": kind, "bytes": data.hex(), "comment": comment, "reason": None}
        for name, kind, comment, data in [*_valid(), *wire_more.valid()]
    ]
    broken = [
        {
            "name": rule,
            "message": kind,
            "bytes": data.hex(),
            "comment": comment,
            "reason": "WIRE_MALFORMED",
        }
        for rule, kind, comment, data in [*_broken(), *wire_more.broken()]
    ]
    return {
        "file": "wire",
        "spec": "spec/02-entry §2",
        "comment": "Scan `bytes` as `message` of package antiphon.v1. `reason` null: inside the"
        " strict subset; otherwise `name` is the rule it breaks.",
        "vectors": [*valid, *broken],
    }
