"""What is left of a list, in the order in which it is sent."""

from replica.ids import ConversationId
from syncd.links.listing import RestOfList

IDS = [ConversationId(bytes([number]) * 32) for number in range(6)]


def test_what_waits_comes_first_and_all_else_by_id() -> None:
    rest = RestOfList([IDS[4], IDS[2]], [IDS[5], IDS[0], IDS[3], IDS[1]])
    assert len(rest) == 6
    assert next(rest) == IDS[2]
    assert (len(rest), list(rest)) == (5, [IDS[4], IDS[0], IDS[1], IDS[3], IDS[5]])
    assert not rest


def test_what_is_left_takes_memory() -> None:
    rest = RestOfList(IDS[:1], IDS[1:])
    before = rest.memory_bytes
    list(rest)
    assert (before, rest.memory_bytes) == (48, 0)
