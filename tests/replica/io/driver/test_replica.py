"""A replica: its listeners, and what it deletes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from replica.ids import EntryId
from replica.io.driver.replica import Replica
from replica.io.store.store import Store
from replica.link.events import EntriesAdmitted, Event
from replica.log.body import Genesis
from replica.refusals import StoreFull
from tests.support.callers import until
from tests.support.files import full_disk, write_locked
from tests.support.writers import Writer, said

ADA = Writer(1)


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[Replica]:
    async with Replica.open(tmp_path / "log.db", ADA.key) as made:
        yield made


async def test_a_listener_that_stops_takes_no_event_from_another(replica: Replica) -> None:
    events: list[Event] = []
    stop = replica.listen(lambda _event: stop())
    replica.listen(events.append)
    begun = await replica.create(Genesis((ADA.public,)))
    assert isinstance(events[0], EntriesAdmitted)
    assert events[0].conversation == begun


async def test_no_listener_hears_of_entries_that_the_disk_refuses(replica: Replica) -> None:
    begun = await replica.create(Genesis((ADA.public,)))
    assert isinstance(replica.store, Store)
    events: list[Event] = []
    replica.listen(events.append)
    async with full_disk(replica.store):
        with pytest.raises(StoreFull):
            await replica.append(begun, said("x" * 100_000), parents=(EntryId(begun),))
    assert events
    assert not any(isinstance(event, EntriesAdmitted) for event in events)


async def test_what_is_still_to_be_written_is_deleted_too(replica: Replica) -> None:
    begun = await replica.create(Genesis((ADA.public,)))
    performer = replica._driver._performer
    assert isinstance(replica.store, Store)

    def append(text: str) -> "asyncio.Task[object]":
        written = replica.append(begun, said(text), parents=(EntryId(begun),))
        return asyncio.create_task(written)

    async with write_locked(replica.store):
        first = append("being written")
        await until(lambda: performer._begun == 2)  # the genesis was the first
        second = append("behind it")
        await until(lambda: performer._submitted == 3)
        deleting = asyncio.create_task(replica.delete(begun))
        await asyncio.sleep(0)
    await asyncio.gather(first, second, deleting)
    assert not await replica.store.has(begun)
