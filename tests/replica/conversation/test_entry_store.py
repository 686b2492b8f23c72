"""Results of a load: empty ones, and incomplete ones."""

from replica.conversation.entry_store import Loaded
from replica.log.damage import NOTHING_LOST, Lost
from tests.support.writers import Writer


def test_a_load_of_nothing_differs_from_one_that_lost_everything():
    assert not Loaded([], NOTHING_LOST)
    assert Loaded([], Lost(is_unreadable=True))
    assert Loaded([Writer(1).genesis()], NOTHING_LOST)


def test_a_body_of_none_is_missing_unless_it_is_apart():
    assert Loaded([], NOTHING_LOST).apart == frozenset()
