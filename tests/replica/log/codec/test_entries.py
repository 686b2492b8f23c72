"""Headers and entries: round trips and bounds (spec/02-entry)."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.v1 import log_pb2
from replica import limits
from replica.log import codec, wire
from replica.log.codec.entries import shape_of
from replica.log.entry import Header, entry_id
from replica.refusals import (
    BodyTooLarge,
    HeaderTooLarge,
)
from spec.vectors.make.build import one_field
from tests.replica.log.codec.samples import headers
from tests.support.writers import Writer


@given(headers())
def test_a_header_comes_back_and_is_in_the_strict_subset(header: Header) -> None:
    data = codec.encode_header(header)
    wire.check(data, shape_of(log_pb2.Header.DESCRIPTOR))
    assert codec.decode_header(data) == header


@given(headers(), st.none() | st.binary(max_size=20))
def test_an_entry_comes_back_with_its_id(header: Header, body: bytes | None) -> None:
    data = codec.encode_header(header)
    entry = codec.decode_entry(data, b"s", body)
    assert codec.decode_entry_message(codec.encode_entry(entry)) == entry
    assert entry.id == entry_id(data)


def test_an_absent_body_is_not_an_empty_one() -> None:
    entry = Writer(1).genesis()
    for body in (None, b""):
        changed = replace(entry, body=body)
        assert codec.decode_entry_message(codec.encode_entry(changed)).body == body


def test_a_header_has_8_kib_at_most() -> None:
    header = Writer(1).genesis().header_bytes
    room = limits.HEADER_BYTES_MAX - len(header) - 4
    codec.decode_header(header + one_field(99, bytes(room)))
    with pytest.raises(HeaderTooLarge):
        codec.decode_header(header + one_field(99, bytes(room + 1)))


def test_a_body_has_512_kib_at_most() -> None:
    header = Writer(1).genesis().header_bytes
    codec.decode_entry(header, b"", bytes(limits.BODY_BYTES_MAX))
    with pytest.raises(BodyTooLarge):
        codec.decode_entry(header, b"", bytes(limits.BODY_BYTES_MAX + 1))


def test_a_header_has_a_name_for_every_field_of_the_message() -> None:
    assert len(fields(Header)) == len(log_pb2.Header.DESCRIPTOR.fields)
