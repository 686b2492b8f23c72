"""Items of a frame are counted on its bytes, before a parser sees them (spec/11-limits)."""

from math import ceil
from typing import Any
from unittest import mock

import pytest

from antiphon.v1 import log_pb2
from antiphon.v1 import sync_pb2 as pb
from replica import limits
from replica.link import codec
from replica.link.codec import decode_frame
from replica.link.item_bounds import STEP_FIELDS, check_steps
from replica.link.messages import Ping
from replica.link.steps import finished
from replica.refusals import FrameMalformed, FrameTooLarge


def check_items(data: bytes, descriptor: Any) -> None:
    finished(check_steps(data, descriptor))


def _entries(count: int) -> bytes:
    return pb.LinkRequest(entries=pb.Entries(entries=[log_pb2.Entry()] * count)).SerializeToString()


def test_a_frame_of_empty_entries_is_refused_before_it_is_parsed() -> None:
    data = _entries(limits.ENTRIES_PER_FRAME_MAX + 1)
    with mock.patch.object(codec, "parse") as parse, pytest.raises(FrameTooLarge):
        decode_frame(data, "to_hub")
    assert not parse.called
    check_items(_entries(limits.ENTRIES_PER_FRAME_MAX), pb.LinkRequest.DESCRIPTOR)


def test_items_of_a_message_that_is_split_are_counted_together() -> None:
    half = _entries(limits.ENTRIES_PER_FRAME_MAX // 2 + 1)
    with pytest.raises(FrameTooLarge):
        check_items(half + half, pb.LinkRequest.DESCRIPTOR)


@pytest.mark.parametrize(
    ("request_type", "message", "most"),
    [
        (pb.PushRequest, pb.PushRequest(entries=[log_pb2.Entry()]), limits.ENTRIES_PER_FRAME_MAX),
        (pb.FetchRequest, pb.FetchRequest(ranges=[pb.LaneRange()]), limits.FETCH_RANGES_MAX),
        (pb.FetchRequest, pb.FetchRequest(ids=[b""]), limits.ITEMS_PER_FRAME_MAX),
        (pb.WatchRequest, pb.WatchRequest(cursor=[pb.LaneHead()]), limits.HEADS_PER_FRAME_MAX),
    ],
)
def test_each_repeated_field_has_a_bound(request_type, message, most: int) -> None:
    one = message.SerializeToString()
    check_items(one * most, request_type.DESCRIPTOR)
    with pytest.raises(FrameTooLarge):
        check_items(one * (most + 1), request_type.DESCRIPTOR)


def test_packed_items_count_by_their_bytes() -> None:
    draft = pb.Draft(token_ids=[1] * (limits.ITEMS_PER_FRAME_MAX + 1))
    with pytest.raises(FrameTooLarge):
        check_items(pb.LinkRequest(draft=draft).SerializeToString(), pb.LinkRequest.DESCRIPTOR)


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(b"\x78\x01", id="an unknown number"),
        pytest.param(b"\x7a\x00", id="unknown bytes"),
        pytest.param(b"\x0a\x00", id="an id again and again"),
    ],
)
def test_other_fields_count_together(field: bytes) -> None:
    """A parser takes 3 ms for 1 MB of them, and a scan that goes on 300 ms."""
    check_items(field * limits.ITEMS_PER_FRAME_MAX, pb.WatchRequest.DESCRIPTOR)
    for request_type in (pb.WatchRequest, pb.AuthenticateRequest):
        with pytest.raises(FrameTooLarge):
            check_items(field * (limits.ITEMS_PER_FRAME_MAX + 1), request_type.DESCRIPTOR)


def test_a_long_frame_is_counted_in_steps() -> None:
    heads = pb.WatchRequest(cursor=[pb.LaneHead(seq=1)] * limits.HEADS_PER_FRAME_MAX)
    profiles = [pb.ProfileInfo(name="a")] * limits.HEADS_PER_FRAME_MAX
    hello = pb.LinkRequest(hello=pb.Hello(host=pb.HostInfo(profiles=profiles)))
    for message, fields in ((heads, len(heads.cursor)), (hello, 2 + 2 * len(profiles))):
        pauses = list(check_steps(message.SerializeToString(), message.DESCRIPTOR))
        assert 1 + len(pauses) == ceil(fields / STEP_FIELDS)


def test_no_group_hides_what_is_behind_it() -> None:
    data = b"\x7b\x7c" + _entries(limits.ENTRIES_PER_FRAME_MAX + 1)
    assert pb.LinkRequest.FromString(data), "a parser skips the group"
    with pytest.raises(FrameTooLarge):
        check_items(data, pb.LinkRequest.DESCRIPTOR)


def test_a_group_is_an_unknown_field_in_frames_of_any_size() -> None:
    """A scan of a short frame would cost more than its parser."""
    ping = pb.LinkRequest(ping=pb.Ping(nonce=7)).SerializeToString()
    group = b"\x7b\x08\x01\x13\x14\x7c"  # with a field and a group in it
    for data in (ping + group, ping + group * 200, group * 200 + ping):
        assert decode_frame(data, "to_hub") == Ping(7, 0)
    inside = b"\x7b" + _entries(limits.ENTRIES_PER_FRAME_MAX + 1) + b"\x7c"
    check_items(inside, pb.LinkRequest.DESCRIPTOR)
    fields = b"\x08\x01" * (limits.ITEMS_PER_FRAME_MAX - 1)
    groups = b"\x7b\x7c" * limits.ITEMS_PER_FRAME_MAX
    for data in (b"\x7b" + fields + b"\x7c", groups):
        check_items(data, pb.LinkRequest.DESCRIPTOR)
    for data in (b"\x7b" + fields + b"\x08\x01\x7c", groups + b"\x7b\x7c"):
        with pytest.raises(FrameTooLarge):
            check_items(data, pb.LinkRequest.DESCRIPTOR)
    for data in (ping + b"\x7c", ping + b"\x7b", ping * 200 + b"\x7c" + ping * 200, ping + b"\x7e"):
        check_items(data, pb.LinkRequest.DESCRIPTOR)
        with pytest.raises(FrameMalformed):
            decode_frame(data, "to_hub")


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\xff", b"\x0b", b"\x80" * 12, b"\x0d\x01"])
def test_bytes_that_do_not_parse_are_left_to_the_parser(data: bytes) -> None:
    check_items(data, pb.LinkRequest.DESCRIPTOR)
    with pytest.raises(FrameMalformed):
        decode_frame(data, "to_hub")
