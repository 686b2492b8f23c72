"""Which Opened answers the last Open of a client."""

import pytest

from replica import limits
from replica.ids import ConversationId, Digest
from replica.link.last_open import LastOpen
from replica.link.messages import Opened

ID, OURS, OTHER = ConversationId(bytes(32)), Digest(b"o" * 32), Digest(b"?" * 32)


@pytest.fixture
def last() -> LastOpen:
    return LastOpen()


def test_nothing_answers_where_nothing_was_asked(last: LastOpen) -> None:
    assert not last.is_answered_by(Opened(ID, OURS, True))
    last.begin(OURS, 3.0, with_heads=False)
    last.is_unanswered = False
    assert not last.is_answered_by(Opened(ID, OURS, True))


def test_equal_answers_the_digest_that_was_stated(last: LastOpen) -> None:
    last.begin(OURS, 3.0, with_heads=True)
    assert last.is_answered_by(Opened(ID, OURS, True))
    assert not last.is_answered_by(Opened(ID, OTHER, True))


@pytest.mark.parametrize("with_heads", [False, True])
def test_an_answer_without_heads_is_one_to_a_digest_alone(last: LastOpen, with_heads: bool) -> None:
    last.begin(OURS, 3.0, with_heads=with_heads)
    assert last.is_answered_by(Opened(ID, OTHER, False)) is not with_heads
    assert last.is_answered_by(Opened(ID, OTHER, False, ()))


def test_an_answer_counts_as_lost_after_a_while(last: LastOpen) -> None:
    assert not last.awaits_answer(0.0)
    last.begin(OURS, 3.0, with_heads=False)
    assert last.awaits_answer(3.0 + limits.RESYNC_S - 0.1)
    assert not last.awaits_answer(3.0 + limits.RESYNC_S)


def test_an_open_is_the_comparison_that_was_due(last: LastOpen) -> None:
    last.is_due_again = True
    last.begin(OURS, 3.0, with_heads=False)
    assert (last.is_due_again, last.is_unanswered, last.sent_at) == (False, True, 3.0)
