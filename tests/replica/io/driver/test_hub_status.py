"""What a log says of failures: the hub's are not the replica's own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from replica.errors import StoreError
from replica.ids import ConversationId, EntryId, short
from replica.io.driver.hub_status import HubStatus
from replica.io.driver.saved_acks import SavedAcks
from replica.io.driver.saved_endings import SavedEndings
from replica.io.store.store import Store
from replica.link import EntryFailed, Fault, Forgotten
from replica.refusals import LogsTooLarge, QuotaExceeded, StoreCorrupt, StoreFull
from tests.support.core_scene import Scene

ID, ENTRY = ConversationId(b"c" * 32), EntryId(b"e" * 32)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "log.db") as opened:
        yield opened


def status_of(store: Store, scene: Scene) -> HubStatus:
    return HubStatus(scene.core, None, SavedEndings(store, SavedAcks(store, None)), list, list)


def said_of(store: Store, event: EntryFailed) -> str:
    status = status_of(store, Scene())
    with capture_logs() as logs:
        status.receive(event)
    assert status.refusal(ID) == event.fault
    (line,) = logs
    assert line["reason"] == event.fault.reason
    return str(line["event"])


async def test_a_failure_of_the_own_store_is_not_the_hub_s(store: Store) -> None:
    own = Fault.of(StoreError("a bad sector"), ID)
    assert said_of(store, EntryFailed(ID, None, own, is_own=True)) == "the store failed"
    # The hub may have a full disk, too.
    assert said_of(store, EntryFailed(ID, None, Fault.of(StoreFull(), ID))) == "the hub refused"


async def test_a_refusal_that_the_hub_repeats_is_said_once_for_each_conversation(
    store: Store,
) -> None:
    status, other = status_of(store, Scene()), ConversationId(b"o" * 32)
    with capture_logs() as logs:
        for conversation in (ID, ID, other, ID):
            fault = Fault.of(LogsTooLarge(), conversation)
            status.receive(EntryFailed(conversation, None, fault))
        status.receive(EntryFailed(ID, None, Fault.of(StoreFull(), ID)))
    assert [(line["conversation"], line["reason"], line["times"]) for line in logs] == [
        (short(ID), LogsTooLarge.reason, 1),
        (short(other), LogsTooLarge.reason, 1),
        (short(ID), StoreFull.reason, 1),
    ]


async def test_a_full_disk_is_said_once_for_all_conversations_and_damage_for_each(
    store: Store,
) -> None:
    status = status_of(store, Scene())
    others = [ConversationId(bytes([number]) * 32) for number in range(3)]
    with capture_logs() as logs:
        for error in (StoreFull(), StoreCorrupt("a page")):
            for conversation in (*others, *others):
                fault = Fault.of(error, conversation)
                status.receive(EntryFailed(conversation, None, fault, is_own=True))
    said = [line["reason"] for line in logs]
    assert said == [StoreFull.reason, *[StoreCorrupt.reason] * 3]


async def test_an_entry_that_the_replica_refuses_is_not_refused_by_the_hub(store: Store) -> None:
    fault = Fault.of(QuotaExceeded(), ID, ENTRY)
    assert (
        said_of(store, EntryFailed(ID, ENTRY, fault, is_own=True))
        == "an entry of the hub was refused"
    )
    assert said_of(store, EntryFailed(ID, ENTRY, fault)) == "the hub refused"


async def test_the_refusal_of_a_conversation_is_forgotten_with_it(store: Store) -> None:
    status = status_of(store, Scene())
    status.receive(EntryFailed(ID, None, Fault.of(QuotaExceeded(), ID)))
    assert status.refusal(ID) is not None
    status.receive(Forgotten(ID))
    assert status.refusal(ID) is None
    assert not status._refusals


async def test_a_link_is_up_once_its_hosts_are_known(store: Store) -> None:
    scene = Scene()
    status = status_of(store, scene)
    seen = []
    for _ in range(2):
        scene.connect()
        seen.append(status.is_linked)  # the core is ahead of what its driver delivers
        for event in scene.delivered:
            status.receive(event)
        seen.append(status.is_linked)
        scene.delivered.clear()
        scene.disconnect()
        for event in scene.delivered:
            status.receive(event)
        scene.delivered.clear()
    assert seen == [False, True, False, True]
