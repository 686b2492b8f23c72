"""Followed conversations: loads from the store, and tries to open them again."""

from replica.core import pauses
from replica.core.follows import Follows
from replica.ids import ConversationId

A, B = (ConversationId(bytes([n]) * 32) for n in (1, 2))


def following(*conversations: ConversationId) -> Follows:
    follows = Follows()
    for conversation in conversations:
        follows.add(conversation, drafts=True)
    return follows


def test_a_conversation_is_added_once_and_keeps_its_first_choice_of_drafts() -> None:
    follows = Follows()
    assert follows.add(A, drafts=False)
    assert not follows.add(A, drafts=True)
    assert (A in follows, follows.drafts(A), follows.drafts(B)) == (True, False, None)
    assert list(follows) == [A]


def test_a_removed_conversation_is_neither_followed_nor_opened_again() -> None:
    follows = following(A)
    follows.reopen_later(A, 0.0)
    assert follows.remove(A)
    assert not follows.remove(A)
    assert (A in follows, follows.wake_at, follows.due(1e9)) == (False, None, ())


def test_a_conversation_is_read_once_at_a_time() -> None:
    follows = following(A, B)
    assert follows.begin_loads([A]) == (A,)
    assert follows.begin_loads([A, B]) == (B,)
    follows.end_load(A)
    assert follows.begin_loads([A, B]) == (A,)


def test_a_try_is_due_once_after_its_pause() -> None:
    follows = following(A, B)
    follows.reopen_later(B, 1.0)
    follows.reopen_later(A, 0.0)
    first = pauses.REOPEN_FIRST_S
    assert follows.wake_at == first
    assert follows.due(first - 0.01) == ()
    assert follows.due(first) == (A,)
    assert follows.due(first) == ()
    assert follows.wake_at == 1.0 + first


def test_each_try_waits_longer_until_the_conversation_is_in_sync() -> None:
    follows = following(A)
    waits = []
    for _ in range(3):
        follows.reopen_later(A, 0.0)
        waits.append(follows.wake_at)
    assert waits == [pauses.REOPEN_FIRST_S * n for n in (1, 2, 4)]
    follows.note_synchronized(A)
    follows.reopen_later(A, 0.0)
    assert follows.wake_at == pauses.REOPEN_FIRST_S


def test_only_a_followed_conversation_is_opened_again() -> None:
    follows = following(A)
    follows.reopen_later(B, 0.0)
    assert follows.wake_at is None


def test_a_link_that_ends_cancels_the_tries_but_not_the_growth_of_their_pauses() -> None:
    follows = following(A)
    follows.reopen_later(A, 0.0)
    follows.stop_reopening()
    assert (follows.wake_at, follows.due(1e9)) == (None, ())
    follows.reopen_later(A, 0.0)
    assert follows.wake_at == 2 * pauses.REOPEN_FIRST_S
