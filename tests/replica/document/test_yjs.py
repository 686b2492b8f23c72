"""The bounded reader of Yjs v1 updates: accepted and refused input, and its cost."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycrdt import Array, Doc, Map, Text, TransactionEvent

from replica.document.lib0 import (
    NESTING_MAX,
    SAFE_INTEGER_MAX,
    NestingTooDeep,
    UpdateMalformed,
    ValueRefused,
    text,
    varuint,
)
from replica.document.yjs import (
    EMPTY_UPDATE,
    Content,
    DecodedUpdate,
    Deletion,
    Struct,
    StructId,
    UpdateTooLarge,
    decode_update,
    encode_update,
    named_clients,
    rename_clients,
)
from replica.errors import EntryRefused
from replica.limits import DOCUMENT_UPDATE_BYTES_MAX

HEAD = b"\x01\x01\x05\x00"  # one section, one struct, client 5, clock 0
ROOT_KEY = b"\x01" + text("meta")


def any_update(value: bytes) -> bytes:
    """Return an update that sets meta["k"] to the lib0 bytes `value`."""
    return HEAD + b"\x28" + ROOT_KEY + text("k") + b"\x01" + value + b"\x00"


def captured(*writes: tuple[str, object]) -> list[bytes]:
    doc: Doc[Map[object]] = Doc(client_id=5)
    updates: list[bytes] = []

    def capture(event: TransactionEvent) -> None:
        updates.append(event.update)

    doc.observe(capture)
    root = doc.get("meta", type=Map)
    for key, value in writes:
        root[key] = value
    return updates


def test_a_struct_is_read_as_pycrdt_wrote_it() -> None:
    first, second = (decode_update(update) for update in captured(("k", "a"), ("k", "b")))
    set_first = Struct(
        StructId(5, 0), 1, Content.ANY, b"\x01w\x01a", root="meta", key="k", origin=None
    )
    assert first == DecodedUpdate((set_first,), ())
    (set_second,) = second.structs
    assert (set_second.origin, set_second.root, set_second.key) == (StructId(5, 0), None, None)
    assert second.deletions == (Deletion(StructId(5, 0), 1),)


@pytest.mark.parametrize(
    "value",
    [None, True, 5, -5, 0.1, 1e300, 2**53 - 1, "ü", [1, [2]], {"a": {"b": None}}, b"x"],
)
def test_every_json_value_pycrdt_writes_is_read(value: object) -> None:
    (update,) = captured(("k", value))
    if isinstance(value, bytes):
        with pytest.raises(ValueRefused):
            decode_update(update)
    else:
        assert decode_update(update).structs[0].content is Content.ANY


def test_shared_types_of_pycrdt_are_read_as_such() -> None:
    (array, *_) = captured(("k", Array([1, 2])))
    kinds = [item.content for item in decode_update(array).structs]
    assert kinds == [Content.TYPE, Content.ANY]
    (written, *_) = captured(("k", Text("a\U0001f600")))
    (_, run) = decode_update(written).structs
    # Clocks count UTF-16 units: one for the letter, two for the emoji.
    assert (run.content, run.length, run.parent) == (Content.STRING, 3, StructId(5, 0))


@pytest.mark.parametrize(
    ("content", "body", "length"),
    [
        (Content.DELETED, b"\x07", 7),
        (Content.JSON, b"\x02" + text("1") + text("2"), 2),
        (Content.BINARY, b"\x02ab", 1),
        (Content.STRING, text("abc"), 3),
        (Content.EMBED, text("{}"), 1),
        (Content.FORMAT, text("bold") + text("true"), 1),
        (Content.TYPE, b"\x00", 1),
        (Content.TYPE, b"\x03" + text("p"), 1),
        (Content.ANY, b"\x02\x7e\x78", 2),
        (Content.DOC, text("guid") + b"\x76\x00", 1),
    ],
)
def test_each_content_has_its_number_of_clocks(content: Content, body: bytes, length: int) -> None:
    data = HEAD + bytes([content | 0x20]) + ROOT_KEY + text("k") + body + b"\x00"
    (item,) = decode_update(data).structs
    assert (item.content, item.content_bytes, item.length) == (content, body, length)
    assert encode_update(decode_update(data)) == data


@pytest.mark.parametrize("content", [Content.GC, Content.SKIP])
def test_gaps_have_a_length_and_nothing_else(content: Content) -> None:
    data = HEAD + bytes([content]) + b"\x09\x00"
    assert decode_update(data).structs == (Struct(StructId(5, 0), 9, content, b"\x09"),)
    assert encode_update(decode_update(data)) == data
    with pytest.raises(UpdateMalformed):
        decode_update(HEAD + bytes([content | 0x80]) + b"\x01\x01\x09\x00")


@pytest.mark.parametrize(
    ("broken", "update"),
    [
        ("no bytes", b""),
        ("trailing byte", EMPTY_UPDATE + b"\x00"),
        ("integer not minimal", b"\x80\x00\x00"),
        ("integer above 2**53 - 1", varuint(2**53) + b"\x00"),
        ("integer without end", b"\xff" * 12),
        ("integer padded beyond 8 groups", b"\x80" * 8 + b"\x01\x00"),
        ("section without structs", b"\x01\x00\x05\x00\x00"),
        ("client with two sections", b"\x02" + (b"\x01\x05\x00\x00\x01" * 2) + b"\x00"),
        ("clocks overflow", b"\x01\x01\x05" + varuint(SAFE_INTEGER_MAX) + b"\x00\x01\x00"),
        ("content 11", HEAD + b"\x2b" + ROOT_KEY + text("k") + b"\x00"),
        ("parent of a third form", HEAD + b"\x28\x02" + text("k") + b"\x01\x7e\x00"),
        ("shared type 7", HEAD + b"\x27" + ROOT_KEY + text("k") + b"\x07\x00"),
        ("deleted run of 0", HEAD + b"\x21" + ROOT_KEY + text("k") + b"\x00\x00"),
        ("empty string content", HEAD + b"\x24" + ROOT_KEY + text("k") + b"\x00\x00"),
        ("no values", HEAD + b"\x28" + ROOT_KEY + text("k") + b"\x00\x00"),
        ("key not UTF-8", HEAD + b"\x28" + ROOT_KEY + b"\x01\xff\x01\x7e\x00"),
        ("root a lone surrogate", HEAD + b"\x28\x01\x03\xed\xa0\x80\x01k\x01\x7e\x00"),
        ("client with no deletions", b"\x00\x01\x05\x00"),
        ("deletion of length 0", b"\x00\x01\x05\x01\x00\x00"),
        ("deletions overlap", b"\x00\x01\x05\x02\x00\x02\x01\x01"),
        ("deletions descend", b"\x00\x01\x05\x02\x04\x01\x00\x01"),
        ("client deleted from twice", b"\x00\x02" + b"\x05\x01\x00\x01" * 2),
        ("integer value not minimal", any_update(b"\x7d\x80\x00")),
        ("integer value minus zero", any_update(b"\x7d\x40")),
        ("the integer value 2**53", any_update(b"\x7d\x80" + varuint(2**47))),
        ("integer value without end", any_update(b"\x7d" + b"\x80" * 12)),
        ("value tag 0", any_update(b"\x00")),
        ("map with one key twice", any_update(b"\x76\x02\x01a\x7e\x01a\x7e")),
    ],
)
def test_bytes_outside_the_strict_form_are_malformed(broken: str, update: bytes) -> None:
    with pytest.raises(UpdateMalformed):
        decode_update(update)


@pytest.mark.parametrize(
    "value",
    [
        b"\x7f",  # undefined
        b"\x7a" + bytes(8),  # bigint
        b"\x74\x01x",  # bytes
        b"\x7b" + struct.pack(">d", float("nan")),
        b"\x7b" + struct.pack(">d", float("-inf")),
        b"\x7c" + struct.pack(">f", float("inf")),
    ],
)
def test_a_value_that_json_cannot_hold_is_refused(value: bytes) -> None:
    with pytest.raises(ValueRefused):
        decode_update(any_update(value))


def test_the_largest_exact_integer_is_read() -> None:
    assert decode_update(any_update(b"\x7d\xbf" + varuint(2**47 - 1))).structs


@pytest.mark.parametrize("opening", [b"\x75\x01", b"\x76\x01\x01a"])
def test_values_nest_64_deep_and_no_deeper(opening: bytes) -> None:
    assert decode_update(any_update(opening * NESTING_MAX + b"\x7e")).structs
    with pytest.raises(NestingTooDeep):
        decode_update(any_update(opening * (NESTING_MAX + 1) + b"\x7e"))
    with pytest.raises(NestingTooDeep):
        decode_update(any_update(opening * (60_000 // len(opening))))


def test_an_update_has_at_most_64_kib() -> None:
    room = DOCUMENT_UPDATE_BYTES_MAX - len(any_update(b"\x77" + text("x" * 60_000))) + 60_000
    assert decode_update(any_update(b"\x77" + text("x" * room)))
    with pytest.raises(UpdateTooLarge):
        decode_update(any_update(b"\x77" + text("x" * (room + 1))))


def test_an_update_cut_at_any_byte_is_malformed() -> None:
    for update in captured(("k", {"a": [1.5, "b"]}), ("k", 7), ("l", None)):
        for size in range(len(update)):
            with pytest.raises(UpdateMalformed):
                decode_update(update[:size])


def test_one_changed_byte_is_read_or_refused() -> None:
    update = captured(("k", {"a": [1.5, "b"]}), ("k", "second"))[1]
    damaged = [
        update[:at] + bytes([byte]) + update[at + 1 :]
        for at in range(len(update))
        for byte in range(256)
    ]
    read = [found for data in damaged if (found := read_or_none(data)) is not None]
    assert len(update) < len(read) < len(damaged)
    assert all(is_read_whole(found) for found in read)


@settings(max_examples=400)
@given(st.binary(max_size=300))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    for given_bytes in (data, HEAD + data, any_update(data)):
        found = read_or_none(given_bytes)
        assert found is None or is_read_whole(found)


def read_or_none(data: bytes) -> DecodedUpdate | None:
    """Read an update; None where it is refused. Anything else that is raised fails the test."""
    try:
        return decode_update(data)
    except EntryRefused:
        return None


def is_read_whole(update: DecodedUpdate) -> bool:
    """Say whether an update that is read and written again has the same content."""
    return decode_update(encode_update(update)) == canonical(update)


def canonical(update: DecodedUpdate) -> DecodedUpdate:
    # Next to an origin the key flag is optional and means nothing.
    return DecodedUpdate(
        tuple(sorted(update.structs, key=lambda item: (-item.id.client, item.id.clock))),
        tuple(sorted(update.deletions, key=lambda item: (-item.id.client, item.id.clock))),
    )


def test_a_count_beyond_the_input_allocates_nothing() -> None:
    claims = [varuint(2**50), b"\x01" + varuint(2**50) + b"\x05\x00"]
    claims += [any_update(b"\x75" + varuint(2**50)), any_update(b"\x77" + varuint(2**50))]
    claims += [b"\x00" + varuint(2**50), HEAD + b"\x22\x01\x00\x00" + varuint(2**50)]
    tracemalloc.start()
    for claim in claims:
        with pytest.raises(UpdateMalformed):
            decode_update(claim)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_memory_stays_linear_in_the_input() -> None:
    count = 32_000  # the densest input: two bytes per struct
    data = b"\x01" + varuint(count) + b"\x05\x00" + b"\x00\x01" * count + b"\x00"
    tracemalloc.start()
    assert len(decode_update(data).structs) == count
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 * len(data)


ids = st.builds(StructId, st.integers(0, 3), st.integers(0, 9))
runs = st.lists(
    st.tuples(st.integers(0, SAFE_INTEGER_MAX), st.integers(1, 9)), unique_by=lambda r: r[0]
)


@given(st.data())
def test_decoding_undoes_encoding(data: st.DataObject) -> None:
    structs: list[Struct] = []
    for client, count in data.draw(runs):
        for clock in range(count):
            form = data.draw(st.integers(0, 3))
            fields = [
                {"root": "meta", "key": "k"},
                {"parent": StructId(1, 2), "key": "k"},
                {"origin": StructId(3, 4)},
                {"origin": StructId(3, 4), "right_origin": StructId(5, 6)},
            ][form]
            structs.append(
                Struct(StructId(client, clock), 1, Content.ANY, b"\x01\x7e", **fields)  # type: ignore[arg-type]
            )
    deletions = [Deletion(StructId(client, 3), length) for client, length in data.draw(runs)]
    update = DecodedUpdate(tuple(structs), tuple(deletions))
    assert decode_update(encode_update(update)) == canonical(update)


def test_renaming_changes_every_client_and_nothing_else() -> None:
    item = Struct(
        StructId(1, 0), 1, Content.ANY, b"\x01\x7e", StructId(2, 8), StructId(3, 9), None, None
    )
    child = Struct(StructId(1, 1), 1, Content.ANY, b"\x01\x7e", parent=StructId(4, 7), key="k")
    update = DecodedUpdate((item, child), (Deletion(StructId(5, 6), 2),))
    assert named_clients(update) == {1, 2, 3, 4, 5}
    there = {client: client * 10 for client in range(1, 6)}
    renamed = rename_clients(update, there)
    assert named_clients(renamed) == {10, 20, 30, 40, 50}
    assert rename_clients(renamed, {new: old for old, new in there.items()}) == update
