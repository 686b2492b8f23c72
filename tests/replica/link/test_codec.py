"""Frames: round trips, bounds, and nothing but typed errors (spec/04-link)."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.v1 import errors_pb2, log_pb2, sync_pb2
from replica import limits
from replica.conversation.drafts import Draft, Progress
from replica.errors import EntryRefused
from replica.ids import ConversationId, Digest, EntryId, Lane, Position, PublicKey
from replica.link import codec as frames
from replica.link import messages as m
from replica.log import codec
from replica.log.body import Sampling
from replica.log.entry import Entry, Header, entry_id
from replica.log.kinds import KINDS
from replica.refusals import (
    BodyMalformed,
    EntriesMissing,
    FrameMalformed,
    FrameTooLarge,
    WireMalformed,
)
from tests.replica.log.codec.samples import SALT, read_or_refusal
from tests.support.writers import Writer


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


def test_an_error_repeats_nothing_of_the_input() -> None:
    with pytest.raises(FrameMalformed) as caught:
        frames.decode_frame(b"\x0asecret secret", "to_hub")
    assert "secret" not in caught.value.detail


ID, KEY = bytes(32), PublicKey(bytes(32))
CONVERSATION = ConversationId(bytes(32))
POSITION = Position(Lane(KEY, 7, 1), 3, EntryId(ID))
ADVISED = m.ProfileInfo(Digest(ID), "q", 9, Sampling(temperature=0.2, top_p=0.9, top_k=5), "q4")
HOST = m.HostInfo(KEY, "h:1", (m.ProfileInfo(Digest(ID), "p", 9), ADVISED))
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
    m.Listing((m.ListingItem(CONVERSATION),)),
]


def test_entries_leave_out_the_conversation_their_first_header_tells() -> None:
    wrapped = frames.entries_to_pb(m.Entries(GENESIS.conversation, (GENESIS,)))
    assert wrapped.conversation == b""
    assert frames.entries_from_pb(wrapped).conversation == GENESIS.conversation


def test_entries_of_which_none_tells_the_conversation_are_refused_as_a_whole() -> None:
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


def test_of_a_fault_that_names_more_than_fit_the_first_ids_count() -> None:
    """A hub would look for all of them, in one step, and charge for none."""
    missing = [number.to_bytes(32, "big") for number in range(5_000)]
    raw = errors_pb2.Fault(reason="ENTRIES_MISSING", conversation=bytes(32), missing=missing)
    fault = frames.decode_frame(sync_pb2.LinkRequest(fault=raw).SerializeToString(), "to_hub")
    assert isinstance(fault, m.Fault)
    assert fault.missing == tuple(map(EntryId, missing[:64]))


def test_a_fault_is_cut_to_fit_metadata() -> None:
    fault = m.Fault.of(EntriesMissing("x" * 5_000, missing=[bytes(32)] * 5_000))
    raw = frames.encode_frame(fault, "to_client")
    assert len(raw) < limits.METADATA_BYTES_MAX
    back = frames.decode_frame(raw, "to_client")
    assert isinstance(back, m.Fault)
    assert len(back.missing) == 64
