"""What the disk refused counts neither as bytes nor as a conversation (LIM-11, LIM-15)."""

from replica.link.messages import Entries
from replica.log.entry import Entry
from syncd.bounds.disk_quota import stored_bytes
from syncd.hub import Hub
from syncd.policy import Policy
from syncd.refused_entries import note_stored, take_back
from tests.support.scene import HUB_KEY
from tests.support.writers import Writer, said


def _pushed(hub: Hub, *entries: Entry) -> None:
    effects, found = hub.begin_push(Writer(1).public).whole(
        Entries(entries[0].conversation, entries), 0.0
    )
    assert set(found.values()) == {None}
    assert effects.persist == entries


def test_refused_entries_are_taken_back_and_stored_ones_still_count() -> None:
    hub, writer = Hub(HUB_KEY, Policy()), Writer(1)
    genesis = writer.genesis()
    message = writer.write(genesis.conversation, said("x"), parents=[genesis])
    _pushed(hub, genesis)
    _pushed(hub, message)
    take_back(hub, [message])
    assert (hub.disk.total, hub.bringers.brought(writer.public)) == (stored_bytes([genesis]), 1)
    take_back(hub, [genesis])
    assert (hub.disk.total, hub.bringers.brought(writer.public)) == (0, 0)


def test_a_stored_conversation_counts_though_its_genesis_is_refused_again() -> None:
    hub, writer = Hub(HUB_KEY, Policy()), Writer(1)
    genesis = writer.genesis()
    _pushed(hub, genesis)
    note_stored(hub, [genesis])
    take_back(hub, [genesis])
    assert hub.bringers.brought(writer.public) == 1
