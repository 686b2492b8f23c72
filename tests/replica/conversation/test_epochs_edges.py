"""The epoch of the next entry (spec/02-entry §7, ENT-14, ENT-17)."""

import pytest

from replica.conversation.conversation import Conversation
from replica.conversation.epochs import Epochs
from replica.ids import EntryId
from replica.log.damage import Lost
from tests.support.sample import Sample
from tests.support.writers import Writer, said

FRESH = 1000


@pytest.fixture
def sample() -> Sample:
    """A conversation whose owner wrote a message in epoch 1."""
    begun = Sample()
    begun.say(begun.genesis)
    return begun


@pytest.fixture
def epochs(sample: Sample) -> Epochs:
    return Epochs(sample.owner.public, lambda _: True)


def test_an_epoch_that_no_peer_confirmed_is_left(sample: Sample, epochs: Epochs) -> None:
    assert epochs.epoch(sample.held, FRESH) == FRESH


def test_a_fresh_epoch_goes_on_while_the_store_is_open(sample: Sample, epochs: Epochs) -> None:
    epochs.epoch(sample.held, FRESH)
    epochs.confirm(sample.id)
    assert epochs.epoch(sample.held, FRESH + 1) == FRESH


def test_a_confirmed_epoch_goes_on(sample: Sample, epochs: Epochs) -> None:
    epochs.confirm(sample.id)
    assert epochs.epoch(sample.held, FRESH) == 1


def test_a_confirmed_conversation_without_own_entries_begins_an_epoch(sample: Sample) -> None:
    stranger = Epochs(Writer(2).public, lambda _: True)
    stranger.confirm(sample.id)
    assert stranger.epoch(sample.held, FRESH) == FRESH


def test_of_several_epochs_the_one_of_the_newest_own_entry_goes_on(
    sample: Sample, epochs: Epochs
) -> None:
    bob = Writer(2, epoch=9)
    sample.grant(bob)
    newest = Writer(1, epoch=5).write(sample.id, said("x"), parents=[sample.say(sample.genesis)])
    sample.add(newest, Writer(1, epoch=7).write(sample.id, said("x"), parents=[sample.genesis]))
    sample.add(bob.write(sample.id, said("x"), parents=[newest]))
    epochs.confirm(sample.id)
    assert epochs.epoch(sample.held, FRESH) == 5


def test_a_conversation_the_store_lost_entries_of_begins_an_epoch(
    sample: Sample, epochs: Epochs
) -> None:
    entries = sample.held.log.entries.values()
    damaged = Conversation.restore(sample.id, entries, Lost(frozenset([EntryId(bytes(32))])))
    epochs.confirm(sample.id)
    assert epochs.epoch(damaged, FRESH) == FRESH


def test_an_epoch_ends_where_its_own_lane_forks(sample: Sample, epochs: Epochs) -> None:
    epochs.confirm(sample.id)
    assert epochs.epoch(sample.held, FRESH) == 1
    twin = sample.owner.restored()
    sample.say(sample.genesis)
    sample.add(twin.write(sample.id, said("again"), parents=[sample.genesis]))
    assert epochs.epoch(sample.held, FRESH) == FRESH


def test_forks_of_other_lanes_end_no_epoch(sample: Sample, epochs: Epochs) -> None:
    bob, earlier = Writer(2), Writer(1, epoch=3)
    sample.grant(bob)
    for writer in (bob, earlier):
        for words in ("one", "two"):
            twin = writer.restored()
            sample.add(twin.write(sample.id, said(words), parents=[sample.genesis]))
    epochs.begin(sample.id, 1)
    assert epochs.epoch(sample.held, FRESH) == 1


def test_a_conversation_read_again_needs_confirmation_again(sample: Sample, epochs: Epochs) -> None:
    epochs.begin(sample.id, 1)
    epochs.confirm(sample.id)
    epochs.forget(sample.id)
    assert epochs.epoch(sample.held, FRESH) == FRESH
