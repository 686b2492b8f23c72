"""A store's answers: when a load found nothing, and when what it found is not whole."""

from replica.conversation.entry_store import Loaded
from replica.log.damage import NOTHING_LOST, Lost
from tests.support.writers import Writer


def test_a_load_of_nothing_is_told_from_one_of_which_all_is_lost():
    assert not Loaded([], NOTHING_LOST)
    assert Loaded([], Lost(is_unreadable=True))
    assert Loaded([Writer(1).genesis()], NOTHING_LOST)


def test_a_body_none_is_a_missing_one_unless_told_otherwise():
    assert Loaded([], NOTHING_LOST).apart == frozenset()
