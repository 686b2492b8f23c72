"""A start after a kill reads only what changed just before it (DECISIONS D545)."""

import asyncio
import time
from collections.abc import Mapping
from math import inf

import pytest

from replica.errors import StoreError
from replica.ids import ConversationId
from replica.io.store.store import Store
from replica.log.entry import Entry
from syncd.io import record_keeper
from syncd.links.listing import item_of, list_of
from syncd.shelves import records
from tests.support.files import flip_byte, full_disk, query
from tests.support.writers import Writer
from tests.syncd.io.hub_disk import (
    Disk,
    Talk,
    later,
    push,
    stored_logs,
)


async def test_a_start_after_a_kill_reads_what_changed_just_before(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "READ_ENTRIES_MAX", 500)
    still, busy = Talk(1, 510), Talk(2, 510)
    async with await Store.open(disk.path) as store:
        await store.append([*still.entries, *busy.entries])
    async with disk.started() as (driver, store):
        assert set(store.loaded) == {still.id, busy.id}
        await later(driver)
        await push(driver, busy, busy.say("more"))
        await push(driver, busy, busy.grant(Writer(7).public))
    async with disk.started() as (driver, store):
        assert store.loaded == [busy.id]
        shelf = driver.hub.shelf
        assert list(list_of(shelf, still.writer.public)) == [still.id]
        assert item_of(shelf, still.id, still.writer.public) is not None
        held = await driver.permitted(still.writer.public, still.id)
        assert len(held.log) == 511
        assert len(shelf[busy.id].log) == 513
        await later(driver)
    async with disk.started() as (_, store):
        assert store.loaded == []


async def test_few_entries_have_no_records(disk: Disk) -> None:
    await disk.fill(Talk(1), Talk(2))
    assert disk.records == 0


@pytest.mark.usefixtures("long_logs")
class TestLongLogs:
    """All of these are long enough for a record."""

    async def test_a_running_hub_writes_by_itself(
        self, disk: Disk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(record_keeper, "CHECK_S", 0.0)
        monkeypatch.setattr(record_keeper, "QUIET_S", 0.0)
        talk = Talk(1)
        async with disk.started() as (driver, store):
            await push(driver, talk, *talk.entries)
            while not await store.records.load():  # noqa: ASYNC110  # no event tells it
                await asyncio.sleep(0)

    async def test_a_conversation_that_changes_is_not_written(self, disk: Disk) -> None:
        talk = Talk(1)
        async with disk.started() as (driver, _):
            await push(driver, talk, *talk.entries)
            assert not await driver._keeper.write_unchanged(0.0)
        assert disk.records == 0

    async def test_a_stop_writes_what_changed(self, disk: Disk) -> None:
        talk = Talk(1)
        async with disk.started() as (driver, _):
            await push(driver, talk, *talk.entries)
            await driver._keeper.stop()
        assert disk.records == 1
        async with disk.started() as (_, store):
            assert store.loaded == []

    async def test_conversations_out_of_memory_have_records(self, disk: Disk) -> None:
        talks = [Talk(number) for number in range(1, 5)]
        await disk.fill(*talks)
        query(disk.path, "DELETE FROM meta")
        async with disk.started(conversations_in_memory_max=1) as (driver, store):
            assert len(store.loaded) == 4
            await push(driver, talks[0], talks[0].say("more"))
            driver._evict()
            await later(driver)
        async with disk.started(conversations_in_memory_max=1) as (_, store):
            assert store.loaded == []

    async def test_damage_that_came_later_is_found_when_it_is_used(self, disk: Disk) -> None:
        talk = Talk(1)
        await disk.fill(talk)
        flip_byte(disk.path, talk.entries[3].header_bytes)
        async with disk.started() as (driver, store):
            assert store.loaded == []
            held = await driver.permitted(talk.writer.public, talk.id)
            assert talk.entries[3].id in held.damage.missing

    async def test_a_damaged_conversation_has_no_record_until_it_is_whole(self, disk: Disk) -> None:
        talk = Talk(1)
        await disk.fill(talk)
        flip_byte(disk.path, talk.entries[3].header_bytes)
        async with disk.started() as (driver, _):
            await driver.permitted(talk.writer.public, talk.id)
            await later(driver)
        assert disk.records == 0
        async with disk.started(conversations_in_memory_max=0) as (driver, store):
            assert set(store.loaded) == {talk.id}
            await later(driver)
        assert disk.records == 0, "nor one that is not in memory"
        async with disk.started() as (driver, store):
            await push(driver, talk, *talk.entries)
            assert not driver.hub.shelf[talk.id].damage
            await later(driver)
        async with disk.started() as (_, store):
            assert store.loaded == []

    async def test_a_log_of_the_same_size_is_another_log(self, disk: Disk) -> None:
        talk = Talk(1)
        await disk.fill(talk)
        (before,) = await stored_logs(disk)
        flip_byte(disk.path, talk.entries[-1].header_bytes)
        twin = Talk(1, 4)
        other = twin.say("5")  # in place of "4"
        async with disk.started() as (driver, _):
            await driver.permitted(talk.writer.public, talk.id)  # which sets the row aside
        async with await Store.open(disk.path) as store:
            await store.append([other])
        (after,) = await stored_logs(disk)
        assert (before.entries, before.size_bytes) == (after.entries, after.size_bytes)
        assert disk.records == 1
        async with disk.started() as (driver, store):
            assert talk.id in store.loaded
            held = await driver.permitted(talk.writer.public, talk.id)
            assert set(held.log.entries) == {entry.id for entry in twin.entries}

    async def test_a_body_that_comes_later_makes_another_log(self, disk: Disk) -> None:
        talk = Talk(1)
        whole = talk.entries[3]
        talk.entries[3] = Entry(whole.header_bytes, whole.signature, None, whole.id, whole.header)
        await disk.fill(talk)
        async with disk.started() as (driver, store):
            assert store.loaded == []
            await push(driver, talk, whole)
        async with disk.started() as (driver, store):
            assert driver.hub.shelf.apart.is_outdated(talk.id)
            held = await driver.permitted(talk.writer.public, talk.id)
            assert held.log.entries[whole.id].body == whole.body
            await later(driver)
        async with disk.started() as (driver, store):
            assert store.loaded == []
            assert not driver.hub.shelf.apart.is_outdated(talk.id)

    async def test_a_backup_of_the_store_brings_its_own_records(self, disk: Disk) -> None:
        talk = Talk(1)
        await disk.fill(talk)
        backup = disk.path.read_bytes()
        async with disk.started() as (driver, _):
            await push(driver, talk, talk.say("more"))
            await later(driver)
        disk.path.write_bytes(backup)
        async with disk.started() as (driver, store):
            assert store.loaded == []
            held = await driver.permitted(talk.writer.public, talk.id)
            assert len(held.log) == 6

    async def test_a_damaged_record_counts_for_none(self, disk: Disk) -> None:
        talk = Talk(1)
        await disk.fill(talk)
        query(disk.path, "UPDATE meta SET checksum = 1")
        async with disk.started() as (driver, store):
            assert store.loaded == [talk.id]
            await later(driver)
        async with disk.started() as (_, store):
            assert store.loaded == []

    async def test_a_deleted_conversation_has_no_record(self, disk: Disk) -> None:
        one, two = Talk(1), Talk(2)
        await disk.fill(one, two)
        async with disk.started() as (driver, store):
            await push(driver, one, one.say("more"))
            await driver.delete(one.writer.public, one.id)
            await later(driver)
            assert (await store.records.load()).keys() == {two.id}

    async def test_a_record_that_is_written_behind_a_deletion_is_erased(self, disk: Disk) -> None:
        talk = Talk(1)
        async with disk.started() as (driver, store):
            await push(driver, talk, *talk.entries)
            write = store.records.write

            async def late(
                rows: Mapping[ConversationId, bytes], without: object
            ) -> dict[ConversationId, StoreError]:
                store.records.write = write  # type: ignore[method-assign]
                await driver.delete(talk.writer.public, talk.id)
                assert without == set()
                return await write(rows)

            store.records.write = late  # type: ignore[method-assign]
            await later(driver)
            assert await store.records.load() == {}

    async def test_records_of_nothing_are_erased_by_the_start(self, disk: Disk) -> None:
        talk = Talk(1)
        await disk.fill(talk)
        query(disk.path, "DELETE FROM entries")
        async with disk.started() as (_, store):
            assert await store.records.load() == {}

    async def test_what_a_full_disk_refuses_is_written_later(self, disk: Disk) -> None:
        talks = [Talk(number, 1) for number in range(1, 41)]
        async with disk.started() as (driver, store):
            for talk in talks:
                await push(driver, talk, *talk.entries)
            async with full_disk(store):
                assert not await driver._keeper.write_unchanged(inf)
                assert await store.records.load() == {}
            assert not await driver._keeper.write_unchanged(time.monotonic()), "not at once"
            await later(driver)
            assert (await store.records.load()).keys() == {talk.id for talk in talks}
