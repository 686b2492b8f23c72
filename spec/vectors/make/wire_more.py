"""More byte strings of wire.json, each for a scanner that looks at less than the rules say."""

from spec.vectors.make.build import Fixed, Key, one_field, varint

KEY = Key("ada").public
ID = bytes(range(32))
Row = tuple[str, str, str, bytes]


def _sampling(*fields: bytes) -> bytes:
    return one_field(2, b"".join(fields))


def _results(count: int, data: bytes) -> bytes:
    """Nest tool results around a part: each is a message in a part."""
    for _ in range(count):
        data = one_field(5, one_field(2, data))
    return one_field(2, data)


def valid() -> list[Row]:
    """Return rows inside the strict subset."""
    return [
        ("varint-greatest", "Header", "ten bytes, the last 01", varint(5 << 3) + b"\xff" * 9
         + b"\x01"),
        ("field-greatest", "Header", "field 2^29 - 1", varint((2**29 - 1) << 3) + b"\x01"),
        ("unknown-fixed32", "Header", "unknown, of 4 bytes", varint(99 << 3 | 5) + bytes(4)),
        ("unknown-fixed64", "Header", "unknown, of 8 bytes", varint(99 << 3 | 1) + bytes(8)),
        ("unknown-greatest", "Header", "an unknown varint has 64 bits", one_field(99, 2**64 - 1)),
        ("critical", "Header", "a bool is 1", one_field(11, 1)),
        ("uint32", "Header", "the greatest uint32", one_field(13, 2**32 - 1)),
        ("packed-greatest", "Seal", "the greatest packed number", one_field(7, varint(2**32 - 1))),
        ("packed-zeros", "Seal", "a packed 0 is no default", one_field(7, b"\x00\x00")),
        ("packed-floats-zero", "TokenLogprobs", "nor is a packed float 0", one_field(3, bytes(4))),
        ("repeated-empty", "Header", "an element of a repeated field may be empty, and is checked"
         " elsewhere", one_field(7, b"") * 2),
        ("repeated-text-empty", "Request", "an empty stop string likewise", one_field(5, b"")),
        ("repeated-message-empty", "Revocation", "a cut without fields", one_field(2, b"") * 2),
        ("negative-zero", "Sampling", "-0.0 is not the default of a double: one of its bits is"
         " set", one_field(1, Fixed(1 << 63))),
        ("not-a-number", "Sampling", "any 8 bytes are a double", one_field(1, Fixed(0x7FF8 << 48))),
        ("oneof-text-empty", "Request", "a chosen text may be empty, and is refused elsewhere",
         one_field(14, b"")),
        ("oneof-default", "Opaque", "so may chosen bytes", one_field(10, b"")),
        ("utf-8-four", "Request", "a character of four bytes",
         one_field(5, b"\xf0\x9f\x92\xa1")),
        ("bytes-any", "Opaque", "bytes need not be UTF-8", one_field(10, b"\xff\xfe")),
        ("nested-eight", "Message", "eight messages inside it",
         _results(3, one_field(1, one_field(1, b"x")))),
        ("unknown-nested", "Member", "an unknown field inside a message",
         one_field(1, one_field(1, KEY) + one_field(9, b"\xff"))),
        ("unknown-group-bytes", "Header", "what looks like a group inside unknown bytes is none",
         one_field(99, b"\x0b\x0c\x07")),
    ]  # fmt: skip


def broken() -> list[Row]:
    """Return rows that break a rule; the first column names it."""
    return [*_numbers_and_order(), *_values_and_types(), *_nested_and_texts()]


def _numbers_and_order() -> list[Row]:
    overlong = b"\x80\x00"
    return [
        ("varint-minimal", "Seal", "an overlong packed number", one_field(7, b"\x05" + overlong)),
        ("varint-minimal", "Header", "an overlong zero", varint(99 << 3) + overlong),
        ("varint-minimal", "Header", "an overlong number in an unknown field",
         varint(99 << 3) + b"\x85\x00"),
        ("varint-minimal", "Header", "an overlong length of an unknown field",
         varint(99 << 3 | 2) + b"\x81\x00x"),
        ("varint-minimal", "Member", "an overlong number inside a message",
         one_field(1, one_field(1, KEY) + varint(2 << 3) + b"\x82\x00")),
        ("varint-10-bytes", "Header", "ten bytes, each with more to come",
         varint(5 << 3) + b"\xff" * 10),
        ("varint-64-bits", "Header", "the tenth byte is 2, of an unknown field",
         varint(99 << 3) + b"\xff" * 9 + b"\x02"),
        ("varint-64-bits", "Header", "2^64 in an unknown field",
         varint(99 << 3) + b"\x80" * 9 + b"\x02"),
        ("varint-64-bits", "Seal", "a packed number of 70 bits",
         one_field(7, b"\xff" * 9 + b"\x7f")),
        ("varint-cut-off", "Seal", "a packed number is cut off", one_field(7, b"\x05\x80")),
        ("varint-cut-off", "Seal", "a packed number ends behind its field",
         one_field(7, b"\x05\x80") + one_field(8, b"")),
        ("field-number", "Header", "field 2^29 + 1, which is 1 in 29 bits",
         varint((2**29 + 1) << 3 | 2) + b"\x00"),
        ("field-number", "Member", "field 0 inside a message", one_field(1, b"\x00\x01")),
        ("ascending", "Header", "an unknown field before another", one_field(99, 1)
         + one_field(98, 1)),
        ("ascending", "Member", "the role before the key",
         one_field(1, one_field(2, 2) + one_field(1, KEY))),
        ("ascending", "Seal", "a repeated field in two places",
         one_field(3, ID) + one_field(4, ID) + one_field(3, ID)),
        ("once", "Header", "author twice, the same bytes", one_field(2, KEY) * 2),
        ("once", "Genesis", "a message twice", _sampling(one_field(2, 5)) * 2),
        ("once", "Member", "one member of a oneof twice", one_field(1, one_field(1, KEY)) * 2),
    ]  # fmt: skip


def _values_and_types() -> list[Row]:
    return [
        ("default", "Sampling", "a double 0 spelled out", one_field(1, Fixed(0))),
        ("default", "Header", "a bool false spelled out", one_field(11, 0)),
        ("default", "Header", "an enum 0 spelled out", one_field(4, 0)),
        ("default", "Header", "a uint32 0 spelled out", one_field(13, 0)),
        ("default", "Cancel", "an empty string spelled out", one_field(1, b"")),
        ("default", "ToolResult", "a bool inside a message", one_field(3, 0)),
        ("default", "Cut", "fixed64 0 inside a message", one_field(1, Fixed(0))),
        ("wire-type", "Header", "a uint32 of 4 bytes", varint(13 << 3 | 5) + b"\1\0\0\0"),
        ("wire-type", "Header", "a bool as bytes", one_field(11, b"\x01")),
        ("wire-type", "Header", "an enum of 4 bytes", varint(10 << 3 | 5) + b"\1\0\0\0"),
        ("wire-type", "Header", "fixed64 as fixed32", varint(3 << 3 | 5) + b"\1\0\0\0"),
        ("wire-type", "Header", "fixed64 as bytes", one_field(3, b"\1" * 8)),
        ("wire-type", "Sampling", "a double as a varint", one_field(1, 1)),
        ("wire-type", "TokenLogprobs", "a float of 8 bytes", one_field(1, Fixed(1))),
        ("wire-type", "TokenLogprobs", "packed floats, one by one",
         varint(3 << 3 | 5) + b"\1\0\0\0"),
        ("wire-type", "Cancel", "a string as a varint", one_field(1, 1)),
        ("wire-type", "Genesis", "a message as a varint", one_field(2, 1)),
        ("wire-type", "Genesis", "a repeated key as a varint", one_field(1, 1)),
        ("wire-type", "Header", "wire type 7 does not exist", varint(99 << 3 | 7)),
    ]  # fmt: skip


def _nested_and_texts() -> list[Row]:
    return [
        ("group", "Genesis", "a message as a group", varint(2 << 3 | 3) + varint(2 << 3 | 4)),
        ("group", "Member", "an unknown group inside a message",
         one_field(1, one_field(1, KEY) + varint(9 << 3 | 3) + varint(9 << 3 | 4))),
        ("cut-off", "Header", "unknown bytes shorter than their length",
         varint(99 << 3 | 2) + b"\x05abc"),
        ("cut-off", "Header", "unknown fixed64 of seven bytes", varint(99 << 3 | 1) + b"\1" * 7),
        ("cut-off", "Header", "a length of 2^64 - 1", varint(2 << 3 | 2) + varint(2**64 - 1)),
        ("cut-off", "TokenLogprobs", "a float of three bytes", varint(1 << 3 | 5) + b"\1\1\1"),
        ("varint-cut-off", "Header", "ends before a length", varint(2 << 3 | 2)),
        ("varint-cut-off", "Member", "a number is behind the end of its message",
         one_field(1, one_field(1, KEY) + varint(2 << 3)) + one_field(9, 1)),
        ("cut-off", "Member", "bytes end behind their message",
         one_field(1, one_field(1, KEY)[:-1]) + one_field(9, 1)),
        ("cut-off", "Member", "a fixed64 ends behind its message",
         one_field(2, one_field(1, KEY) + one_field(2, varint(1 << 3 | 1) + b"\1" * 7))
         + one_field(9, 1)),
        ("range", "Header", "critical 2^32 + 1, which is 1 in 32 bits", one_field(11, 2**32 + 1)),
        ("range", "Header", "track 2^32 + 1", one_field(4, 2**32 + 1)),
        ("range", "Grant", "a role of 2^31", one_field(2, 2**31)),
        ("range", "ToolResult", "a bool of 2 inside a message", one_field(3, 2)),
        ("nested-nine", "Message", "nine messages inside it",
         _results(4, b"")),
        ("nested", "Genesis", "the sampling is not strict", _sampling(one_field(2, 0))),
        ("nested", "Genesis", "a bias is not strict",
         _sampling(one_field(10, one_field(2, Fixed(1)) + one_field(1, 1)))),
        ("utf-8", "Cancel", "an overlong slash", one_field(1, b"\xc0\xaf")),
        ("utf-8", "Cancel", "half a surrogate pair", one_field(1, b"\xed\xa0\x80")),
        ("utf-8", "Cancel", "beyond U+10FFFF", one_field(1, b"\xf4\x90\x80\x80")),
        ("utf-8", "Cancel", "a character cut off", one_field(1, b"a\xe2\x82")),
        ("utf-8", "Request", "a text of the oneof", one_field(13, b"\xff")),
    ]  # fmt: skip
