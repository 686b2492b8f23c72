"""The strict wire subset (spec/02-entry §2); single rules are in spec/vectors/wire.json."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.v1 import log_pb2 as pb
from replica.log import wire
from replica.log.codec.entries import shape_of
from replica.refusals import WireMalformed
from spec.vectors.make.build import one_field, varint
from tests.support.writers import Writer

HEADER = shape_of(pb.Header.DESCRIPTOR)
MESSAGE = shape_of(pb.Message.DESCRIPTOR)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_a_minimal_varint_is_read_back(value: int, rest: bytes) -> None:
    data = varint(value)
    assert wire.read_varint(data + rest, 0, len(data + rest)) == (value, len(data))


@given(st.integers(0, 2**56 - 1), st.integers(1, 2))
def test_a_padded_varint_is_refused(value: int, padding: int) -> None:
    data = bytearray(varint(value))
    data[-1] |= 0x80
    data += b"\x80" * (padding - 1) + b"\x00"
    with pytest.raises(WireMalformed):
        wire.read_varint(bytes(data), 0, len(data))


@given(st.binary(max_size=80))
def test_random_bytes_are_refused_or_read_alike_by_a_parser(data: bytes) -> None:
    assert is_refused(data) or rewritten(data) == data


@given(st.data())
def test_a_damaged_header_is_refused_or_reads_back_alike(data: st.DataObject) -> None:
    header = bytearray(Writer(1).genesis().header_bytes)
    assert not is_refused(bytes(header))
    at = data.draw(st.integers(0, len(header) - 1))
    header[at] = data.draw(st.integers(0, 255))
    assert is_refused(bytes(header)) or rewritten(bytes(header)) == header


def is_refused(header: bytes) -> bool:
    try:
        wire.check(header, HEADER)
    except WireMalformed:
        return True
    return False


def rewritten(header: bytes) -> bytes:
    """Bytes that pass the scan are read and written back unchanged by every parser."""
    return pb.Header.FromString(header).SerializeToString(deterministic=True)


def test_every_proper_prefix_that_ends_inside_a_field_is_refused() -> None:
    header = Writer(1).genesis().header_bytes
    whole = sum(not is_refused(header[:end]) for end in range(len(header)))
    assert whole == len(pb.Header.FromString(header).ListFields())


def _nested_results(depth: int) -> bytes:
    part = one_field(1, one_field(1, b"x"))
    for _ in range(depth):
        part = one_field(5, one_field(2, part))
    return one_field(2, part)


def test_messages_nest_to_a_bound() -> None:
    # A part and a result are two levels.
    wire.check(_nested_results(3), MESSAGE)
    with pytest.raises(WireMalformed, match="nest deeper than 8"):
        wire.check(_nested_results(4), MESSAGE)


def test_a_known_message_field_carries_its_shape() -> None:
    broken = wire.Shape({1: wire.Field(wire.Form.MESSAGE)})
    with pytest.raises(AssertionError, match="carry a shape"):
        wire.check(one_field(1, b""), broken)


@pytest.mark.parametrize(("wire_type", "size"), [(1, 8), (5, 4)])
def test_an_unknown_field_of_fixed_width_is_passed_over_or_cut_off(
    wire_type: int, size: int
) -> None:
    tag = varint(15 << 3 | wire_type)
    wire.check(tag + b"x" * size, wire.Shape())
    with pytest.raises(WireMalformed, match="cut off"):
        wire.check(tag + b"x" * (size - 1), wire.Shape())


def test_only_elements_of_repeated_fields_may_be_empty() -> None:
    for repeated in (True, False):
        shape = wire.Shape({1: wire.Field(wire.Form.BYTES, repeated=repeated)})
        if repeated:
            wire.check(one_field(1, b"") * 2, shape)
        else:
            with pytest.raises(WireMalformed, match="default"):
                wire.check(one_field(1, b""), shape)


def test_fields_are_counted_inside_messages_too_and_bounded() -> None:
    body = one_field(1, 1) + one_field(2, one_field(1, one_field(1, b"a")))  # a part, its text
    assert wire.check(body, MESSAGE) == 4
    assert wire.check(body, MESSAGE, fields_max=4) == 4
    with pytest.raises(WireMalformed, match="more than 3 fields"):
        wire.check(body, MESSAGE, fields_max=3)
    with pytest.raises(WireMalformed, match="more than 2 fields"):
        wire.check(one_field(99, 1) * 3, MESSAGE, fields_max=2)
