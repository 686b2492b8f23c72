"""Parts of messages and generations, converted both ways."""

import pytest

from antiphon.v1 import log_pb2 as pb
from replica import limits
from replica.log import body as b
from replica.log.codec.parts import part_from_pb, part_to_pb, parts_from_pb
from replica.refusals import BodyMalformed


def nested(depth: int) -> b.Part:
    """Return a text inside so many tool results."""
    part: b.Part = b.Text("innermost")
    for _ in range(depth):
        part = b.ToolResult("1", (part,), False)
    return part


def test_parts_nest_as_deep_as_allowed() -> None:
    deepest = nested(limits.PART_NESTING_MAX)
    assert part_from_pb(part_to_pb(deepest)) == deepest
    with pytest.raises(BodyMalformed, match="nest deeper"):
        part_from_pb(part_to_pb(nested(limits.PART_NESTING_MAX + 1)))


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
