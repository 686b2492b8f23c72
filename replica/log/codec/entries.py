"""Encoding and decoding of headers, bodies and entries (spec/02-entry).

Headers and bodies pass the strict wire check first. Decoded values are
never encoded again in place of the bytes they came from.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as PbMessage

from antiphon.v1 import log_pb2 as pb
from replica import limits
from replica.ids import (
    ID_BYTES,
    KEY_BYTES,
    SALT_BYTES,
    ConversationId,
    Digest,
    EntryId,
    PublicKey,
    Track,
)
from replica.log import wire
from replica.log.body import Body
from replica.log.codec.bodies import body_from_pb, body_to_pb
from replica.log.entry import Entry, Header, entry_id
from replica.log.kinds import Kind, rules_of
from replica.refusals import (
    BodyMalformed,
    BodyTooLarge,
    FieldInvalid,
    GenesisInvalid,
    HeaderTooLarge,
    TrackInvalid,
    WireMalformed,
)

if TYPE_CHECKING:
    from google._upb._message import Descriptor as UpbDescriptor

_M = TypeVar("_M", bound=PbMessage)

_FORMS = {
    FieldDescriptor.TYPE_UINT64: wire.Form.UINT64,
    FieldDescriptor.TYPE_UINT32: wire.Form.UINT32,
    FieldDescriptor.TYPE_ENUM: wire.Form.ENUM,
    FieldDescriptor.TYPE_BOOL: wire.Form.BOOL,
    FieldDescriptor.TYPE_FIXED64: wire.Form.FIXED64,
    FieldDescriptor.TYPE_DOUBLE: wire.Form.FIXED64,
    FieldDescriptor.TYPE_FLOAT: wire.Form.FIXED32,
    FieldDescriptor.TYPE_BYTES: wire.Form.BYTES,
    FieldDescriptor.TYPE_STRING: wire.Form.STRING,
    FieldDescriptor.TYPE_MESSAGE: wire.Form.MESSAGE,
}

_PACKED = {
    wire.Form.UINT32: wire.Form.PACKED_UINT32,
    wire.Form.FIXED32: wire.Form.PACKED_FIXED32,
}
"""Repeated numbers: one field occurrence holds them all."""

_SHAPES: dict[str, wire.Shape] = {}


def shape_of(descriptor: "Descriptor | UpbDescriptor") -> wire.Shape:
    """Return the shape that the strict subset allows for a generated message type."""
    known = _SHAPES.get(descriptor.full_name)
    if known is not None:
        return known
    fields: dict[int, wire.Field] = {}
    shape = _SHAPES[descriptor.full_name] = wire.Shape(fields)
    for item in descriptor.fields:
        form = _FORMS[item.type]
        if item.is_repeated and form in _PACKED:
            fields[item.number] = wire.Field(_PACKED[form])
            continue
        nested = shape_of(item.message_type) if item.message_type else None
        oneof = item.containing_oneof.name if item.containing_oneof is not None else None
        fields[item.number] = wire.Field(form, bool(item.is_repeated), oneof, nested)
    return shape


def check_wire(message: str, data: bytes) -> None:
    """Scan the bytes of a message of log.proto. Raises WireMalformed."""
    wire.check(data, shape_of(getattr(pb, message).DESCRIPTOR))


BODIES_CACHED = 4
"""Bodies that are not decoded twice: admission asks up to three times for those of one entry."""
_HEADER_SHAPE = shape_of(pb.Header.DESCRIPTOR)

_MESSAGES: dict[int, type[PbMessage]] = {kind: getattr(pb, kind.name.capitalize()) for kind in Kind}
"""The generated message of each kind's body, named like the kind."""


def parse(message: type[_M], data: bytes, error: Callable[[str], Exception]) -> _M:
    """Parse `data`. Raises `error`, with a text that repeats none of the input."""
    try:
        return message.FromString(data)
    except DecodeError as cause:
        raise error(f"not a {message.DESCRIPTOR.name}") from cause


def encode_header(header: Header) -> bytes:
    """Serialise a header for signing, in the strict subset."""
    return pb.Header(
        conversation=header.conversation or b"",
        author=header.author,
        epoch=header.epoch,
        track=cast("pb.Track.ValueType", header.track),
        seq=header.seq,
        prev=header.prev or b"",
        parents=header.parents,
        basis=header.basis or b"",
        lamport=header.lamport,
        kind=cast("pb.Kind.ValueType", header.kind),
        critical=header.critical,
        body_digest=header.body_digest,
        body_bytes=header.body_bytes,
        create_time_ms=header.create_time_ms,
        conflict=cast("pb.Conflict.ValueType", header.conflict),
    ).SerializeToString(deterministic=True)


def decode_header(data: bytes) -> Header:
    """Decode header bytes. Raises the EntryRefused of the first broken rule."""
    if len(data) > limits.HEADER_BYTES_MAX:
        raise HeaderTooLarge(f"the header has {len(data)} bytes")
    header = _read_header(data)
    if header is None or _has_negative_enum(header) or encode_header(header) != data:
        # Our own encoding is strict, but for negative enums, which protobuf writes as it reads
        # them. Bytes that differ from it are scanned: they may hold fields unknown here, and
        # the scan names the broken rule.
        wire.check(data, _HEADER_SHAPE)
        header = _read_header(data)
        if header is None:
            raise WireMalformed("not a Header")
    _check_fields(header)
    return header


def _read_header(data: bytes) -> Header | None:
    try:
        raw = pb.Header.FromString(data)
    except DecodeError:
        return None
    return Header(
        conversation=ConversationId(raw.conversation) if raw.conversation else None,
        author=PublicKey(raw.author),
        epoch=raw.epoch,
        track=raw.track,
        seq=raw.seq,
        prev=EntryId(raw.prev) if raw.prev else None,
        parents=tuple(EntryId(p) for p in raw.parents),
        basis=EntryId(raw.basis) if raw.basis else None,
        lamport=raw.lamport,
        kind=raw.kind,
        critical=raw.critical,
        body_digest=Digest(raw.body_digest),
        body_bytes=raw.body_bytes,
        create_time_ms=raw.create_time_ms,
        conflict=raw.conflict,
    )


def _has_negative_enum(header: Header) -> bool:
    return header.track < 0 or header.kind < 0 or header.conflict < 0


def _check_fields(header: Header) -> None:
    _check_lengths(header)
    if header.body_bytes < SALT_BYTES:
        raise FieldInvalid("a body has at least its 16 bytes of salt")
    if header.seq > limits.CLOCK_MAX or header.lamport > limits.CLOCK_MAX:
        raise FieldInvalid("seq and lamport stay below 2^53")
    if header.epoch == 0 or header.kind == 0:
        raise FieldInvalid("epoch and kind are never 0")
    if header.conflict not in (0, 1):
        raise FieldInvalid(f"conflict {header.conflict} is not defined")
    if header.body_bytes > limits.BODY_BYTES_MAX:
        raise BodyTooLarge(f"the header states a body of {header.body_bytes} bytes")
    if header.kind == Kind.GENESIS:
        _check_genesis_fields(header)
        return
    if header.conversation is None:
        raise FieldInvalid("only a genesis has no conversation")
    if (header.prev is None) != (header.seq == 0):
        raise FieldInvalid("prev is absent exactly at seq 0")
    if header.track not in (Track.CONVERSATION, Track.DOCUMENT, Track.MEMBERSHIP):
        raise TrackInvalid(f"track {header.track} is not defined")
    track = rules_of(header.kind).track
    if track not in (None, header.track):
        raise TrackInvalid(f"kind {header.kind} is on track {track}")


def _check_lengths(header: Header) -> None:
    parents = header.parents
    for one in (header.conversation, header.prev, header.basis, header.body_digest, *parents):
        if one is not None and len(one) != ID_BYTES:
            raise FieldInvalid("ids and digests have 32 bytes")
    if len(header.author) != KEY_BYTES:
        raise FieldInvalid("a key has 32 bytes")
    if len(parents) > limits.PARENTS_MAX:
        raise FieldInvalid(f"{len(parents)} parents; at most {limits.PARENTS_MAX}")
    if len(parents) > 1 and any(a >= b for a, b in pairwise(parents)):
        raise FieldInvalid("parents are strictly ascending")
    if not parents and header.kind != Kind.GENESIS:
        raise FieldInvalid("only a genesis has no parents")


def _check_genesis_fields(header: Header) -> None:
    empty = header.conversation is None and header.prev is None and header.basis is None
    if not empty or header.parents or header.seq or header.lamport or header.track:
        raise GenesisInvalid("a genesis has no conversation, prev, parents, basis, seq or lamport")


def decode_entry(header_bytes: bytes, signature: bytes, body: bytes | None) -> Entry:
    """Decode an entry from its three byte strings; the body is not parsed yet."""
    if body is not None and len(body) > limits.BODY_BYTES_MAX:
        raise BodyTooLarge(f"the body has {len(body)} bytes")
    header = decode_header(header_bytes)
    return Entry(header_bytes, signature, body, entry_id(header_bytes), header)


def encode_body(body: Body) -> bytes:
    """Serialise the content of a body; the caller prepends the salt."""
    return body_to_pb(body).SerializeToString(deterministic=True)


def decode_body(kind: int, body: bytes, turn: Callable[[], object] | None = None) -> Body | None:
    """Decode a body; None for kinds unknown here. `turn` is called for each field.

    Raises BodyMalformed where the content does not parse or exceeds a bound. A
    control entry is then refused, any other is void.
    """
    found = _read_body(kind, body, _Turn(turn))
    if isinstance(found, BodyMalformed):
        raise BodyMalformed(found.detail)
    return found


def fields_of(kind: int, body: bytes, turn: Callable[[], object] | None = None) -> int:
    """Return the number of fields of a body, about what it costs to decode it, undecoded."""
    return _scan(kind, body, _Turn(turn))[1]


class _Turn:
    """What is called for each field; no part of the key of a cache, so equal to any other."""

    def __init__(self, call: Callable[[], object] | None) -> None:
        self.call = call

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Turn)

    def __hash__(self) -> int:
        return 0


def _scanned(kind: int, body: bytes, turn: _Turn) -> tuple[BodyMalformed | None, int]:
    """Return why a body is not in the strict subset, if so, with the number of its fields."""
    message = _MESSAGES.get(kind)
    if message is None:
        return None, 0
    if len(body) < SALT_BYTES:
        return BodyMalformed("a body has at least its 16 bytes of salt"), 0
    content, shape = body[SALT_BYTES:], shape_of(message.DESCRIPTOR)
    try:
        most = limits.BODY_FIELDS_MAX
        return None, wire.check(content, shape, fields_max=most, turn=turn.call)
    except WireMalformed as error:
        # As many at most: the scan ended before the end.
        return BodyMalformed(error.detail), min(len(content) // 2, limits.BODY_FIELDS_MAX)


_scan = lru_cache(BODIES_CACHED)(_scanned)


def _decoded(kind: int, body: bytes, turn: _Turn) -> Body | BodyMalformed | None:
    """Return a decoded body, or why it does not parse."""
    malformed, _ = _scan(kind, body, turn)
    message = _MESSAGES.get(kind)
    if malformed is not None or message is None:
        return malformed
    try:
        return body_from_pb(parse(message, body[SALT_BYTES:], BodyMalformed))
    except BodyMalformed as error:
        return BodyMalformed(error.detail)


_read_body = lru_cache(BODIES_CACHED)(_decoded)


def entry_to_pb(entry: Entry) -> pb.Entry:
    """Convert an entry to its message, bytes unchanged."""
    return pb.Entry(header=entry.header_bytes, signature=entry.signature, body=entry.body)


def entry_from_pb(raw: pb.Entry) -> Entry:
    """Convert a message to an entry. Raises the EntryRefused of the first broken rule."""
    return decode_entry(raw.header, raw.signature, raw.body if raw.HasField("body") else None)


def encode_entry(entry: Entry) -> bytes:
    """Return the entry as one protobuf message, for files and frames."""
    return entry_to_pb(entry).SerializeToString(deterministic=True)


def decode_entry_message(data: bytes) -> Entry:
    """Decode an entry from one protobuf message. Raises EntryRefused."""
    return entry_from_pb(parse(pb.Entry, data, WireMalformed))
