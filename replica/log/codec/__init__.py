"""Codecs between bytes and dataclasses; of the pure modules only these use generated types."""

from replica.log.codec.bodies import sampling_from_pb, sampling_to_pb
from replica.log.codec.entries import (
    check_wire,
    decode_body,
    decode_entry,
    decode_entry_message,
    decode_header,
    encode_body,
    encode_entry,
    encode_header,
    entry_from_pb,
    entry_to_pb,
    fields_of,
    parse,
)

__all__ = [
    "check_wire",
    "decode_body",
    "decode_entry",
    "decode_entry_message",
    "decode_header",
    "encode_body",
    "encode_entry",
    "encode_header",
    "entry_from_pb",
    "entry_to_pb",
    "fields_of",
    "parse",
    "sampling_from_pb",
    "sampling_to_pb",
]
