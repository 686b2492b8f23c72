"""Bodies: round trips, bounds, and nothing but typed errors (spec/02-entry §5)."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.v1 import log_pb2
from replica.ids import Digest, EntryId, PublicKey
from replica.log import body as b
from replica.log import codec, wire
from replica.log.codec.entries import shape_of
from replica.log.entry import salted
from replica.log.kinds import Kind, kind_of
from replica.refusals import (
    BodyMalformed,
)
from spec.vectors.make.build import one_field, varint
from tests.replica.log.codec.samples import SALT, bodies, read_or_refusal


@given(bodies)
@settings(max_examples=200)
def test_a_body_comes_back_and_is_in_the_strict_subset(body: b.Body) -> None:
    data = codec.encode_body(body)
    message = getattr(log_pb2, _message_name(body))
    wire.check(data, shape_of(message.DESCRIPTOR))
    assert codec.decode_body(kind_of(body), salted(SALT, data)) == body


def _message_name(body: b.Body) -> str:
    return "Document" if isinstance(body, b.DocumentUpdate) else type(body).__name__


@given(bodies, st.data())
def test_a_damaged_body_raises_nothing_but_typed_errors(body: b.Body, data: st.DataObject) -> None:
    raw = bytearray(codec.encode_body(body) or b"\0")
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    found = read_or_refusal(partial(codec.decode_body, kind_of(body)), SALT + raw)
    assert isinstance(found, (type(body), BodyMalformed))


ID, KEY = bytes(32), PublicKey(bytes(32))
REQUEST = b.Request(KEY, b.Sampling())
SEAL = b.Seal(EntryId(ID), None, (EntryId(ID),), Digest(ID), Digest(ID), Digest(ID), (1,), ())
CHECKPOINT = b.Checkpoint(Digest(ID), Digest(ID), 1, Digest(ID), 1)
KEYS = [PublicKey(bytes([i]) * 32) for i in range(70)]


@pytest.mark.parametrize(
    "body",
    [
        b.Genesis(()),
        b.Genesis((KEY, KEY)),
        b.Genesis(tuple(KEYS[:17])),
        b.Genesis((PublicKey(b"short"),)),
        b.Genesis((KEY,), default_stop=("",)),
        b.Genesis((KEY,), default_stop=("x",) * 17),
        b.Member(b.Grant(PublicKey(b""), 1)),
        b.Member(b.Revocation(PublicKey(b"x" * 33))),
        b.Member(b.Revocation(KEY, (b.Cut(1, 1, 1, EntryId(b"")),))),
        b.Member(b.Revocation(KEY, (b.Cut(1, 1, 1, EntryId(ID)),) * 1_025)),
        b.Message(2, (b.Text("x"),) * 257),
        b.Message(2, (b.Text("x"),), label="é" * 33),
        b.Message(2, (b.Media(Digest(b"x"), 1, "a/b"),)),
        b.Message(2, (b.Tokens((1,), Digest(b"")),)),
        b.Message(2, (b.Opaque("a"),)),
        b.Message(2, (b.Opaque("a", blob=Digest(b"x")),)),
        replace(REQUEST, host=PublicKey(b"")),
        replace(REQUEST, profile=Digest(b"x")),
        replace(REQUEST, executor=PublicKey(b"x")),
        replace(REQUEST, stop=("",)),
        replace(REQUEST, stop=("x",) * 17),
        replace(REQUEST, response_format=b.ResponseFormat(b.FormatKind.REGEX, "")),
        replace(REQUEST, response_format=b.ResponseFormat(b.FormatKind.LARK, "é" * 32_769)),
        replace(REQUEST, tool_name="é" * 129),
        replace(REQUEST, membership_heads=(EntryId(b"x"),)),
        replace(REQUEST, membership_heads=(EntryId(ID),) * 2),
        replace(REQUEST, membership_heads=tuple(EntryId(k) for k in KEYS[:65])),
        replace(SEAL, entries=(), tokens_per_entry=()),
        replace(SEAL, tokens_per_entry=(1, 2)),
        replace(SEAL, entries=(EntryId(ID),) * 8_193, tokens_per_entry=(1,) * 8_193),
        replace(SEAL, request=EntryId(b"")),
        replace(SEAL, prev_seal=EntryId(b"x")),
        replace(SEAL, profile=Digest(b"")),
        replace(SEAL, projections=(b.Projected(EntryId(b""), 0, 1),)),
        b.Generation((), (), 0, 1, draft_digest=Digest(b"x")),
        b.Generation((), (), 0, 1, grammar_digest=Digest(b"x")),
        b.Generation((1, 2), (), 0, 1, logprobs=(b.TokenLogprobs(-1.0, (), ()),)),
        b.Generation((1,), (), 0, 1, logprobs=(b.TokenLogprobs(-1.0, (5,), ()),)),
        replace(CHECKPOINT, namespace=Digest(b"")),
        replace(CHECKPOINT, lineage=Digest(b"x")),
        replace(CHECKPOINT, blob=Digest(b"x" * 33)),
        replace(CHECKPOINT, tokens=0),
        replace(CHECKPOINT, tokens=2**24 + 1),
        replace(CHECKPOINT, size_bytes=0),
        replace(CHECKPOINT, size_bytes=2**30 + 1),
    ],
    ids=lambda body: type(body).__name__,
)
def test_a_body_outside_its_bounds_is_malformed(body: b.Body) -> None:
    data = salted(SALT, codec.encode_body(body))
    with pytest.raises(BodyMalformed):
        codec.decode_body(kind_of(body), data)


def test_parts_nest_to_the_bound_of_all_messages() -> None:
    part: b.Part = b.Text("x")
    for _ in range(3):
        part = b.ToolResult("c", (part,))
    data = codec.encode_body(b.Message(2, (part,)))
    assert codec.decode_body(Kind.MESSAGE, SALT + data) == b.Message(2, (part,))
    deeper = codec.encode_body(b.Message(2, (b.ToolResult("c", (part,)),)))
    with pytest.raises(BodyMalformed, match="nest deeper"):
        codec.decode_body(Kind.MESSAGE, SALT + deeper)


def test_a_body_begins_with_its_salt() -> None:
    with pytest.raises(BodyMalformed, match="16 bytes of salt"):
        codec.decode_body(Kind.JOIN, bytes(15))
    assert codec.decode_body(99, b"") is None


def test_unknown_enum_numbers_are_carried() -> None:
    key = PublicKey(bytes(range(32)))
    opaque = b.Opaque("i", "s", purpose=77, need=78, data=b"x")
    for body in (
        b.Message(79, (b.Text("x"), opaque)),
        b.Member(b.Grant(key, 80)),
        b.Request(key, b.Sampling(), tool_choice=81),
    ):
        data = SALT + codec.encode_body(body)
        assert codec.decode_body(kind_of(body), data) == body


def test_an_unknown_change_of_membership_is_malformed() -> None:
    with pytest.raises(BodyMalformed):
        codec.decode_body(Kind.MEMBER, SALT + one_field(3, one_field(1, bytes(32))))


def test_a_part_of_a_newer_version_is_malformed_here() -> None:
    content = one_field(2, one_field(40, b"new"))
    with pytest.raises(BodyMalformed, match="no content this version knows"):
        codec.decode_body(Kind.MESSAGE, SALT + content)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(
    "content",
    [b"\x08\x82\x00", b"\xa3\x06\xa4\x06", b"\x82\x80\x80\x80\x10\x00"],
    ids=["a varint that is not minimal", "a group", "a field number of 30 bits"],
)
def test_bodies_are_in_the_strict_subset(kind: Kind, content: bytes) -> None:
    with pytest.raises(BodyMalformed):
        codec.decode_body(kind, SALT + content)


def test_packed_token_ids_are_minimal_varints_of_32_bits() -> None:
    def decoded(packed: bytes) -> b.Body | None:
        return codec.decode_body(Kind.GENERATION, SALT + one_field(1, packed))

    ids = (0, 127, 128, 2**14, 2**21, 2**28, 2**32 - 1)
    body = decoded(b"".join(map(varint, ids)))
    assert isinstance(body, b.Generation)
    assert body.token_ids == ids
    for packed in (varint(2**32), b"\x80\x00", b"\x85\x80\x00", b"\x80", b"\xff" * 5, b""):
        with pytest.raises(BodyMalformed):
            decoded(packed)
