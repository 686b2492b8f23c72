"""In which epoch a key writes next (spec/02-entry §7, ENT-14, ENT-17)."""

from replica.conversation.conversation import Conversation
from replica.conversation.epochs import Epochs
from replica.log.damage import Lost
from replica.log.entry import Entry
from tests.support.writers import Writer, said

ME, OTHER = Writer(1), Writer(2)
FRESH = 77


def newest(held: Conversation) -> list[Entry]:
    return [max(held.log.entries.values(), key=lambda entry: entry.order_key)]


def epochs_of(writer: Writer, *others: int) -> Epochs:
    """Return the epochs of a key, of which all but some were begun by the store."""
    return Epochs(writer.public, lambda epoch: epoch not in others)


def history(writer: Writer, count: int = 1) -> list:
    entries = [writer.genesis()]
    for number in range(count):
        text = said(str(number))
        entries.append(writer.write(entries[0].conversation, text, parents=entries[-1:]))
    return entries


def held_by(writer: Writer) -> Conversation:
    entries = history(writer)
    return Conversation.restore(entries[0].conversation, entries)


def test_what_no_peer_confirmed_is_written_on_in_a_fresh_epoch() -> None:
    held = held_by(Writer(1, epoch=5))
    assert epochs_of(ME).epoch(held, FRESH) == FRESH


def test_a_fresh_epoch_is_kept_for_the_next_entry() -> None:
    held, epochs = held_by(Writer(1, epoch=5)), epochs_of(ME)
    epochs.epoch(held, FRESH)
    assert epochs.epoch(held, FRESH + 1) == FRESH


def test_a_confirmed_lane_goes_on() -> None:
    held, epochs = held_by(Writer(1, epoch=5)), epochs_of(ME)
    epochs.confirm(held.id)
    assert epochs.epoch(held, FRESH) == 5


def test_the_newest_of_several_confirmed_lanes_goes_on() -> None:
    entries = history(Writer(1, epoch=9))
    later = Writer(1, epoch=4)
    entries.append(later.write(entries[0].conversation, said("later"), parents=entries[-1:]))
    held, epochs = Conversation.restore(entries[0].conversation, entries), epochs_of(ME)
    epochs.confirm(held.id)
    assert epochs.epoch(held, FRESH) == 4


def test_a_lane_of_another_device_of_the_key_does_not_go_on() -> None:
    entries = history(Writer(1, epoch=9))
    device = Writer(1, epoch=4)
    entries.append(device.write(entries[0].conversation, said("later"), parents=entries[-1:]))
    held = Conversation.restore(entries[0].conversation, entries)
    for others, expected in (((4,), 9), ((4, 9), FRESH)):
        epochs = epochs_of(ME, *others)
        epochs.confirm(held.id)
        assert epochs.epoch(held, FRESH) == expected


def test_lanes_of_other_keys_do_not_count() -> None:
    held, epochs = held_by(Writer(1, epoch=5)), epochs_of(OTHER)
    epochs.confirm(held.id)
    assert epochs.epoch(held, FRESH) == FRESH


def test_a_conversation_begun_here_goes_on_in_its_epoch() -> None:
    held, epochs = held_by(Writer(1, epoch=5)), epochs_of(ME)
    epochs.begin(held.id, 5)
    assert epochs.epoch(held, FRESH) == 5


def test_a_forked_lane_is_left() -> None:
    writer = Writer(1, epoch=5)
    entries = history(writer, 0)
    twin = writer.restored()
    for each in (writer, twin):
        text = said(str(id(each)))
        entries.append(each.write(entries[0].conversation, text, parents=entries[:1]))
    held, epochs = Conversation.restore(entries[0].conversation, entries), epochs_of(ME)
    epochs.begin(held.id, 5)
    assert epochs.epoch(held, FRESH) == FRESH


def test_where_the_store_lost_something_a_new_epoch_begins() -> None:
    entries = history(Writer(1, epoch=5), 2)
    lost = Lost(frozenset({entries[-1].id}), frozenset())
    held = Conversation.restore(entries[0].conversation, entries[:-1], lost)
    epochs = epochs_of(ME)
    epochs.confirm(held.id)
    assert epochs.epoch(held, FRESH) == FRESH


def test_a_conversation_read_again_has_nothing_confirmed() -> None:
    held, epochs = held_by(Writer(1, epoch=5)), epochs_of(ME)
    epochs.begin(held.id, 5)
    epochs.confirm(held.id)
    epochs.forget(held.id)
    assert epochs.epoch(held, FRESH) == FRESH


def test_a_store_opened_again_must_hold_the_lane():
    held = held_by(Writer(1, epoch=5))
    stored = set(held.log.entries)
    for there, expected in ((stored, 5), (stored - {held.log.heads()[-1].id}, FRESH)):
        epochs = epochs_of(ME)
        epochs.confirm(held.id)
        epochs.reopened(held, there)
        assert epochs.epoch(held, FRESH) == expected


def test_an_entry_of_another_device_is_none_that_a_store_must_hold():
    held = held_by(Writer(1, epoch=5))
    device = Writer(1, epoch=4)
    other = device.write(held.id, said("elsewhere"), parents=newest(held))
    stored = set(held.log.entries)
    held.admit(other)
    epochs = epochs_of(ME, 4)
    epochs.confirm(held.id)
    epochs.reopened(held, stored)
    assert epochs.epoch(held, FRESH) == 5
