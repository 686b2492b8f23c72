"""The open listed conversations: the order of their use, and the one to close for another."""

import pytest

from replica.core.open_listed import LOOKED_AT_MAX, OpenListed, Use
from replica.ids import ConversationId, PublicKey
from replica.limits import STALE_S

ADA, BOB = (PublicKey(bytes([n]) * 32) for n in (1, 2))


def conversation(number: int) -> ConversationId:
    return ConversationId(number.to_bytes(32, "big"))


FIRST, SECOND, THIRD = map(conversation, (1, 2, 3))


@pytest.fixture
def opened() -> OpenListed:
    """Two of Ada's, and one of Bob's."""
    found = OpenListed()
    for now, (one, creator) in enumerate([(FIRST, ADA), (SECOND, BOB), (THIRD, ADA)]):
        found.add(one, creator, float(now))
    return found


def uses(**by_number: Use) -> dict[ConversationId, Use]:
    return {conversation(int(n[1:])): use for n, use in by_number.items()}


def test_the_one_used_longest_ago_comes_first(opened: OpenListed) -> None:
    opened.touch(FIRST, 7.0)
    opened.touch(conversation(9), 8.0)
    assert list(opened) == [SECOND, THIRD, FIRST]
    assert (len(opened), opened.used_at[FIRST]) == (3, 7.0)


def test_the_idlest_is_of_one_creator_or_of_all(opened: OpenListed) -> None:
    opened.touch(FIRST, 7.0)
    assert opened.idlest(8.0, lambda _: Use.NONE) == SECOND
    assert opened.idlest_of(ADA, 8.0, lambda _: Use.NONE) == THIRD
    assert opened.idlest_of(PublicKey(bytes(32)), 8.0, lambda _: Use.NONE) is None


def test_a_stale_request_is_closed_only_where_all_are_in_use(opened: OpenListed) -> None:
    use_of = uses(n1=Use.HELD, n2=Use.ASKED, n3=Use.ASKED).__getitem__
    assert opened.idlest(STALE_S, use_of) is None
    assert opened.idlest(STALE_S + 1.0, use_of) == SECOND
    use_of = uses(n1=Use.HELD, n2=Use.ASKED, n3=Use.NONE).__getitem__
    assert opened.idlest(STALE_S + 1.0, use_of) == THIRD


def test_only_a_bounded_number_is_looked_at() -> None:
    many, looked_at = OpenListed(), []
    for number in range(LOOKED_AT_MAX + 5):
        many.add(conversation(number), ADA, 0.0)

    def use_of(one: ConversationId) -> Use:
        looked_at.append(one)
        return Use.HELD

    assert many.idlest(1.0, use_of) is None
    assert len(looked_at) == LOOKED_AT_MAX


def test_those_without_a_use_are_closed_and_those_in_use_are_last_again(
    opened: OpenListed,
) -> None:
    use_of = uses(n1=Use.HELD, n2=Use.NONE).__getitem__
    assert list(opened.close_idle(11.5, 10.0, use_of)) == [SECOND]
    assert list(opened) == [THIRD, FIRST]
    assert (opened.count_of(ADA), opened.count_of(BOB)) == (2, 0)
