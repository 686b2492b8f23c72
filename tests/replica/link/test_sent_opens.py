"""Which Opened answers which Open of a client."""

import pytest

from replica import limits
from replica.ids import ConversationId, Digest
from replica.link.messages import Opened
from replica.link.sent_opens import UNANSWERED_MAX, SentOpen, SentOpens

ID, OURS, OTHER = ConversationId(bytes(32)), Digest(b"o" * 32), Digest(b"?" * 32)


def sent(number: int, *, with_heads: bool = False, at: float = 3.0) -> SentOpen:
    return SentOpen(number, OURS, with_heads, at)


@pytest.fixture
def opens() -> SentOpens:
    return SentOpens()


def test_nothing_answers_where_nothing_was_asked(opens: SentOpens) -> None:
    assert opens.answered_by(Opened(ID, OURS, True)) is None
    opens.add(sent(4))
    for number in (0, 3, 5):
        assert opens.answered_by(Opened(ID, OURS, True, None, number)) is None
    assert opens.answered_by(Opened(ID, OURS, True, None, 4)) == sent(4)
    assert opens.answered_by(Opened(ID, OURS, True, None, 4)) is None


def test_an_answer_is_one_to_all_before_it(opens: SentOpens) -> None:
    for number in (4, 6, 7):
        opens.add(sent(number))
    assert opens.answered_by(Opened(ID, OTHER, False, None, 6)) == sent(6)
    assert opens.answered_by(Opened(ID, OTHER, False, None, 4)) is None
    assert len(opens) == 1


def test_equal_answers_the_digest_that_was_stated(opens: SentOpens) -> None:
    opens.add(sent(1, with_heads=True))
    assert opens.answered_by(Opened(ID, OTHER, True, None, 1)) is None
    assert opens.answered_by(Opened(ID, OURS, True, None, 1)) is not None


@pytest.mark.parametrize("with_heads", [False, True])
def test_an_answer_without_heads_is_one_to_a_digest_alone(
    opens: SentOpens, with_heads: bool
) -> None:
    opens.add(sent(1, with_heads=with_heads))
    without = opens.answered_by(Opened(ID, OTHER, False, None, 1))
    assert (without is None) is with_heads
    opens.add(sent(2, with_heads=with_heads))
    assert opens.answered_by(Opened(ID, OTHER, False, (), 2)) is not None


def test_an_answer_is_late_after_a_while_and_counts_nevertheless(opens: SentOpens) -> None:
    assert not opens.are_awaited(0.0)
    opens.add(sent(1, at=3.0))
    assert opens.are_awaited(3.0 + limits.RESYNC_S - 0.1)
    assert not opens.are_awaited(3.0 + limits.RESYNC_S)
    assert opens.answered_by(Opened(ID, OURS, True, None, 1)) is not None


def test_an_open_is_the_comparison_that_was_due(opens: SentOpens) -> None:
    opens.is_due = True
    opens.add(sent(1))
    assert (opens.is_due, opens.last_number, len(opens)) == (False, 1, 1)
    opens.give_up()
    assert not len(opens)


def test_the_oldest_are_given_up_where_a_hub_answers_none(opens: SentOpens) -> None:
    for number in range(1, UNANSWERED_MAX + 3):
        opens.add(sent(number))
    assert len(opens) == UNANSWERED_MAX
    assert opens.answered_by(Opened(ID, OURS, True, None, 2)) is None
    assert opens.answered_by(Opened(ID, OURS, True, None, 3)) is not None
