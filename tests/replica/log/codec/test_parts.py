"""Parts of messages and generations, converted both ways."""

import pytest

from antiphon.v1 import log_pb2 as pb
from replica import limits
from replica.log import body as b
from replica.log.codec.parts import part_from_pb, part_to_pb, parts_from_pb
from replica.refusals import BodyMalformed


def test_a_part_comes_back_with_those_inside_it() -> None:
    part = b.ToolResult("1", (b.ToolResult("2", (b.Text("innermost"),), False),), True)
    assert part_from_pb(part_to_pb(part)) == part


def test_a_part_without_content_is_malformed() -> None:
    with pytest.raises(BodyMalformed):
        part_from_pb(pb.Part())
    with pytest.raises(BodyMalformed, match="neither data nor blob"):
        part_from_pb(pb.Part(opaque=pb.Opaque(issuer="x")))


def test_parts_are_bounded() -> None:
    raw = [part_to_pb(b.Text("x"))] * limits.PARTS_MAX
    assert len(parts_from_pb(raw)) == limits.PARTS_MAX
    with pytest.raises(BodyMalformed, match="at most"):
        parts_from_pb([*raw, raw[0]])
