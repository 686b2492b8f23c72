"""Bytes and dataclasses: round trips, bounds, and nothing but typed errors (spec/02-entry)."""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.v1 import log_pb2, sync_pb2
from replica import limits
from replica.conversation.drafts import Draft, Progress
from replica.errors import AntiphonError, EntryRefused
from replica.ids import ConversationId, Digest, EntryId, Lane, Position, PublicKey
from replica.link import codec as frames
from replica.link import messages as m
from replica.log import body as b
from replica.log import codec, wire
from replica.log.codec.entries import shape_of
from replica.log.entry import Entry, Header, entry_id, salted
from replica.log.kinds import CONTROL_KINDS, KINDS, Kind, kind_of, rules_of
from replica.refusals import (
    BodyMalformed,
    BodyTooLarge,
    EntriesMissing,
    FrameMalformed,
    FrameTooLarge,
    HeaderTooLarge,
    WireMalformed,
)
from spec.vectors.make.build import one_field
from tests.support.writers import Writer, said

SALT = bytes(16)

ids = st.binary(min_size=32, max_size=32)
optional_ids = st.none() | ids
uint32 = st.integers(0, 2**32 - 1)
uint64 = st.integers(0, 2**64 - 1)
words = st.text(max_size=8)
enums = st.integers(0, 20)
doubles = st.floats(allow_nan=False).filter(lambda x: x != 0 or math.copysign(1, x) > 0)
heads = st.lists(ids, max_size=3, unique=True).map(lambda found: tuple(sorted(found)))

samplings = st.builds(
    b.Sampling, doubles, uint32, doubles, doubles, doubles, doubles, doubles, uint32, uint64
)
leaves = st.one_of(
    st.builds(b.Text, words),
    st.builds(b.Media, ids, uint64, words, uint32, uint32),
    st.builds(b.ToolCall, words, words, words),
    st.builds(b.ToolStarted, words, words),
    st.builds(b.Tokens, st.lists(uint32, max_size=4).map(tuple), ids),
    st.builds(
        b.Opaque, words, words, words, words, st.integers(0, 6), st.integers(0, 3), uint32, uint64,
        words, data=st.binary(max_size=8),
    ),
    st.builds(b.Opaque, words, blob=ids),
)  # fmt: skip
parts = st.recursive(
    leaves,
    lambda inner: st.builds(
        b.ToolResult, words, st.lists(inner, max_size=2).map(tuple), st.booleans()
    ),
    max_leaves=4,
)
part_lists = st.lists(parts, max_size=3).map(tuple)
changes = st.one_of(
    st.builds(b.Grant, ids, enums),
    st.builds(b.Revocation, ids, st.lists(st.builds(b.Cut, uint64, enums, uint64, ids)).map(tuple)),
)


@st.composite
def seals(draw: st.DrawFn) -> b.Seal:
    entries = tuple(draw(st.lists(ids, min_size=1, max_size=3)))
    counts = draw(st.lists(uint32, min_size=len(entries), max_size=len(entries)))
    projected = draw(st.lists(st.builds(b.Projected, ids, uint32, enums), max_size=2))
    return b.Seal(
        draw(ids), draw(optional_ids), entries, draw(ids), draw(ids), draw(ids), tuple(counts),
        draw(heads), tuple(projected),
    )  # fmt: skip


bodies = st.one_of(
    st.builds(
        b.Genesis,
        st.lists(ids, min_size=1, max_size=3, unique=True).map(tuple),
        st.none() | samplings,
    ),
    st.builds(b.Member, changes),
    st.builds(b.Message, enums, part_lists),
    st.builds(b.Tools, st.lists(st.builds(b.ToolDefinition, words, words, words)).map(tuple)),
    st.builds(
        b.Request, ids, samplings, optional_ids, uint32,
        st.lists(st.text(min_size=1, max_size=4), max_size=3).map(tuple), optional_ids, heads,
    ),
    seals(),
    st.builds(
        b.Generation, st.lists(uint32, max_size=4).map(tuple), part_lists, uint32, enums, words,
        st.builds(b.Usage, *[uint32] * 5, uint64, uint64), optional_ids, optional_ids,
        optional_ids, optional_ids, uint64,
    ),
    st.builds(b.Cancel, words),
    st.builds(b.DocumentUpdate, st.binary(max_size=8)),
    st.just(b.Join()),
)  # fmt: skip


@st.composite
def headers(draw: st.DrawFn) -> Header:
    seq = draw(st.integers(0, limits.CLOCK_MAX))
    kind = draw(
        st.sampled_from([k for k in Kind if k != Kind.GENESIS]) | st.integers(14, 2**31 - 1)
    )
    return Header(
        conversation=ConversationId(draw(ids)),
        author=PublicKey(draw(ids)),
        epoch=draw(st.integers(1, 2**64 - 1)),
        track=rules_of(kind).track or draw(st.integers(1, 3)),
        seq=seq,
        prev=EntryId(draw(ids)) if seq else None,
        parents=tuple(sorted(draw(st.sets(ids, min_size=1, max_size=4)))),
        basis=draw(optional_ids),
        lamport=draw(st.integers(0, limits.CLOCK_MAX)),
        kind=kind,
        critical=draw(st.booleans()),
        body_digest=Digest(draw(ids)),
        body_bytes=draw(st.integers(16, limits.BODY_BYTES_MAX)),
        create_time_ms=draw(uint64),
        conflict=draw(st.integers(0, 1)),
    )


# --- round trips ---------------------------------------------------------------


@given(headers())
def test_a_header_comes_back_and_is_in_the_strict_subset(header: Header) -> None:
    data = codec.encode_header(header)
    wire.check(data, shape_of(log_pb2.Header.DESCRIPTOR))
    assert codec.decode_header(data) == header


@given(bodies)
@settings(max_examples=200)
def test_a_body_comes_back_and_is_in_the_strict_subset(body: b.Body) -> None:
    data = codec.encode_body(body)
    message = getattr(log_pb2, _message_name(body))
    wire.check(data, shape_of(message.DESCRIPTOR))
    assert codec.decode_body(kind_of(body), salted(SALT, data)) == body


def _message_name(body: b.Body) -> str:
    return "Document" if isinstance(body, b.DocumentUpdate) else type(body).__name__


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


# --- typed errors for any input ------------------------------------------------------


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_random_bytes_raise_nothing_but_typed_errors(data: bytes) -> None:
    assert isinstance(read_or_refusal(codec.decode_header, data), (Header, EntryRefused))
    assert isinstance(read_or_refusal(codec.decode_entry_message, data), (Entry, EntryRefused))
    for kind, rules in KINDS.items():
        found = read_or_refusal(partial(codec.decode_body, kind), SALT + data)
        assert isinstance(found, (rules.body, BodyMalformed))
    assert codec.decode_body(99, SALT + data) is None
    for direction in ("to_hub", "to_client"):
        found = read_or_refusal(lambda d, way=direction: frames.decode_frame(d, way), data)
        assert isinstance(found, (m.Message, FrameMalformed))


@given(bodies, st.data())
def test_a_damaged_body_raises_nothing_but_typed_errors(body: b.Body, data: st.DataObject) -> None:
    raw = bytearray(codec.encode_body(body) or b"\0")
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    found = read_or_refusal(partial(codec.decode_body, kind_of(body)), SALT + raw)
    assert isinstance(found, (type(body), BodyMalformed))


def read_or_refusal(read: Callable[[bytes], object], data: bytes) -> object:
    """Return the value read, or the typed error; any other exception fails the test."""
    try:
        return read(bytes(data))
    except AntiphonError as error:
        assert error.reason != AntiphonError.reason
        assert error.detail
        assert error.next_step
        return error


def test_an_error_repeats_nothing_of_the_input() -> None:
    with pytest.raises(FrameMalformed) as caught:
        frames.decode_frame(b"\x0asecret secret", "to_hub")
    assert "secret" not in caught.value.detail


# --- bounds ------------------------------------------------------------------------


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


ID, KEY = bytes(32), PublicKey(bytes(32))
REQUEST = b.Request(KEY, b.Sampling())
SEAL = b.Seal(EntryId(ID), None, (EntryId(ID),), Digest(ID), Digest(ID), Digest(ID), (1,), ())
KEYS = [PublicKey(bytes([i]) * 32) for i in range(70)]


@pytest.mark.parametrize(
    "body",
    [
        b.Genesis(()),
        b.Genesis((KEY, KEY)),
        b.Genesis(tuple(KEYS[:17])),
        b.Genesis((PublicKey(b"short"),)),
        b.Member(b.Grant(PublicKey(b""), 1)),
        b.Member(b.Revocation(PublicKey(b"x" * 33))),
        b.Member(b.Revocation(KEY, (b.Cut(1, 1, 1, EntryId(b"")),))),
        b.Member(b.Revocation(KEY, (b.Cut(1, 1, 1, EntryId(ID)),) * 1_025)),
        b.Message(2, (b.Text("x"),) * 257),
        b.Message(2, (b.Media(Digest(b"x"), 1, "a/b"),)),
        b.Message(2, (b.Tokens((1,), Digest(b"")),)),
        b.Message(2, (b.Opaque("a"),)),
        b.Message(2, (b.Opaque("a", blob=Digest(b"x")),)),
        replace(REQUEST, host=PublicKey(b"")),
        replace(REQUEST, profile=Digest(b"x")),
        replace(REQUEST, executor=PublicKey(b"x")),
        replace(REQUEST, stop=("",)),
        replace(REQUEST, stop=("x",) * 17),
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
    ],
    ids=lambda body: type(body).__name__,
)
def test_a_body_outside_its_bounds_is_malformed(body: b.Body) -> None:
    data = salted(SALT, codec.encode_body(body))
    with pytest.raises(BodyMalformed):
        codec.decode_body(kind_of(body), data)


def test_parts_nest_to_a_bound() -> None:
    part: b.Part = b.Text("x")
    for _ in range(limits.PART_NESTING_MAX):
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


def test_a_part_of_a_newer_version_is_malformed_here() -> None:
    content = one_field(2, one_field(40, b"new"))
    with pytest.raises(BodyMalformed, match="no content this version knows"):
        codec.decode_body(Kind.MESSAGE, SALT + content)


def test_only_control_bodies_must_be_strict() -> None:
    padded = b"\x08\x82\x00"
    assert codec.decode_body(Kind.MESSAGE, SALT + padded) == b.Message(2, ())
    for kind in CONTROL_KINDS:
        with pytest.raises(BodyMalformed):
            codec.decode_body(kind, SALT + padded)


# --- frames ------------------------------------------------------------------------

CONVERSATION = ConversationId(bytes(32))
POSITION = Position(Lane(KEY, 7, 1), 3, EntryId(ID))
HOST = m.HostInfo(KEY, "h:1", (m.ProfileInfo(Digest(ID), "p", 9),))
GENESIS = Writer(1).genesis()
FAULT = m.Fault("A", "b", "c", True, CONVERSATION, EntryId(ID), (EntryId(ID),), 5)
DRAFT = Draft(
    CONVERSATION, EntryId(ID), 2**64 - 1, 1, (5, 6), 2, b"x", Digest(ID), b"s" * 64,
    Progress(4, 3, 2, 1),
)  # fmt: skip

BOTH_WAYS: list[m.Message] = [
    m.Entries(GENESIS.conversation, (GENESIS, Writer(2).genesis())),
    m.Entries(CONVERSATION, (GENESIS,)),
    m.Entries(CONVERSATION, ()),
    m.Ids(CONVERSATION, (EntryId(ID),), True, True),
    DRAFT,
    replace(DRAFT, progress=None),
    m.Credit(9),
    FAULT,
    m.Fault("A"),
    m.Close(),
    m.Close(CONVERSATION, FAULT),
]
TO_HUB: list[m.Message] = [
    m.Hello((1, 2), ("f",), True, HOST),
    m.Hello((1,)),
    m.Open(CONVERSATION, Digest(ID)),
    m.Open(CONVERSATION, Digest(ID), (), True),
    m.Open(CONVERSATION, Digest(ID), (POSITION,)),
    m.Ping(3, 4),
]
TO_CLIENT: list[m.Message] = [
    m.Welcome(1, KEY, 2, 3, 4, ("f",), (m.LinkedHost(HOST, vouched=True), m.LinkedHost(HOST))),
    m.Opened(CONVERSATION, Digest(ID), True),
    m.Opened(CONVERSATION, Digest(ID), False, ()),
    m.Opened(CONVERSATION, Digest(ID), False, (POSITION,)),
    m.Ack(CONVERSATION, (POSITION.id,)),
    m.Pong(3, 4, 5),
    m.Listing((m.ListingItem(CONVERSATION, Digest(ID)),)),
]


def test_entries_omit_the_conversation_that_their_first_header_has() -> None:
    wrapped = frames.entries_to_pb(m.Entries(GENESIS.conversation, (GENESIS,)))
    assert wrapped.conversation == b""
    assert frames.entries_from_pb(wrapped).conversation == GENESIS.conversation


def test_entries_of_which_none_has_the_conversation_are_refused_as_a_whole() -> None:
    nameless = sync_pb2.Entries(entries=[log_pb2.Entry(header=b"\xff")])
    with pytest.raises(WireMalformed):
        frames.entries_from_pb(nameless)
    with pytest.raises(FrameMalformed):
        frames.entries_from_pb(sync_pb2.Entries())


@pytest.mark.parametrize("message", [*BOTH_WAYS, *TO_HUB], ids=lambda x: type(x).__name__)
def test_a_frame_to_the_hub_comes_back(message: m.Message) -> None:
    assert frames.decode_frame(frames.encode_frame(message, "to_hub"), "to_hub") == message


@pytest.mark.parametrize("message", [*BOTH_WAYS, *TO_CLIENT], ids=lambda x: type(x).__name__)
def test_a_frame_to_the_client_comes_back(message: m.Message) -> None:
    assert frames.decode_frame(frames.encode_frame(message, "to_client"), "to_client") == message


def test_every_message_of_a_link_is_tried() -> None:
    tried = {type(x) for x in (*BOTH_WAYS, *TO_HUB, *TO_CLIENT)}
    assert tried == set(m.Message.__args__)


def test_an_entry_that_breaks_a_rule_is_set_aside_with_the_rule() -> None:
    raw = sync_pb2.Entries(conversation=CONVERSATION)
    raw.entries.append(codec.entry_to_pb(GENESIS))
    raw.entries.append(log_pb2.Entry(header=b"\x90\x00\x05"))
    read = frames.entries_from_pb(raw)
    assert read.entries == (GENESIS,)
    [(refused, error)] = read.refused
    assert refused == entry_id(b"\x90\x00\x05")
    assert isinstance(error, WireMalformed)


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x9a\x06\x00"])
def test_a_frame_without_a_known_message_is_malformed(data: bytes) -> None:
    with pytest.raises(FrameMalformed):
        frames.decode_frame(data, "to_hub")


@pytest.mark.parametrize(
    "frame",
    [
        sync_pb2.LinkRequest(open=sync_pb2.Open(conversation=b"x", digest=ID)),
        sync_pb2.LinkRequest(open=sync_pb2.Open(conversation=ID, digest=b"x")),
        sync_pb2.LinkRequest(ids=sync_pb2.Ids(conversation=ID, ids=b"x")),
        sync_pb2.LinkRequest(hello=sync_pb2.Hello(host=sync_pb2.HostInfo(key=b"x"))),
    ],
)
def test_a_frame_with_a_wrong_width_is_malformed(frame: sync_pb2.LinkRequest) -> None:
    with pytest.raises(FrameMalformed):
        frames.decode_frame(frame.SerializeToString(), "to_hub")


def test_a_frame_has_a_bound() -> None:
    with pytest.raises(FrameTooLarge):
        frames.decode_frame(bytes(limits.FRAME_BYTES_MAX + 1), "to_hub")


def test_a_fault_is_cut_to_fit_metadata() -> None:
    fault = m.Fault.of(EntriesMissing("x" * 5_000, missing=[bytes(32)] * 5_000))
    raw = frames.encode_frame(fault, "to_client")
    assert len(raw) < limits.METADATA_BYTES_MAX
    back = frames.decode_frame(raw, "to_client")
    assert isinstance(back, m.Fault)
    assert len(back.missing) == 64


def test_headers_and_entries_name_no_field_twice() -> None:
    assert len(fields(Header)) == len(log_pb2.Header.DESCRIPTOR.fields)
    assert isinstance(GENESIS, Entry)
    assert codec.decode_body(Kind.MESSAGE, salted(SALT, codec.encode_body(said("x")))) == said("x")
