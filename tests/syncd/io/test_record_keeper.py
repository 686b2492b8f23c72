"""A start after a kill reads only what changed just before it (DECISIONS D545)."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path

import pytest

from replica.conversation.entry_store import Loaded, Stored
from replica.errors import StoreError
from replica.ids import ConversationId, PublicKey
from replica.io.blobs import Blobs
from replica.io.readonly import open_read_only
from replica.io.store import Store
from replica.link.messages import Entries
from replica.log.body import Grant, Member, Request, Revocation, Role, Sampling
from replica.log.entry import Entry
from syncd import records
from syncd.hub import Hub
from syncd.io import record_keeper
from syncd.io.driver import HubDriver
from syncd.listing import item_of, list_of
from syncd.policy import Policy
from tests.support.files import flip_byte, full_disk, query
from tests.support.writers import Writer, said


class CountedStore(Store):
    """A store that notes what is loaded from it."""

    loaded: list[ConversationId]

    async def load(self, conversation: ConversationId, *, bodies: bool = True) -> Loaded:
        self.loaded.append(conversation)
        return await super().load(conversation, bodies=bodies)


class Talk:
    """A conversation of one writer, as the tests know it."""

    def __init__(self, number: int, count: int = 5) -> None:
        self.writer = Writer(number)
        self.entries: list[Entry] = [self.writer.genesis()]
        self.id = self.entries[0].conversation
        self.granted = self.entries[0]
        self.said = self.entries[0]
        for text in range(count):
            self.say(str(text))

    def grant(self, key: PublicKey, role: Role = Role.READER) -> Entry:
        """Grant a role behind the last change of the membership."""
        return self._change(Member(Grant(key, role)))

    def revoke(self, key: PublicKey) -> Entry:
        """Revoke a key behind the last change of the membership."""
        return self._change(Member(Revocation(key, ())))

    def say(self, text: str) -> Entry:
        """Say something behind what was said last."""
        self.said = self.writer.write(self.id, said(text), parents=[self.said])
        self.entries.append(self.said)
        return self.said

    def ask(self, host: PublicKey) -> Entry:
        """Ask a host to answer what was said last."""
        request = self.writer.write(self.id, Request(host, Sampling()), parents=[self.said])
        self.entries.append(request)
        return request

    def _change(self, change: Member) -> Entry:
        self.granted = self.writer.write(self.id, change, parents=[self.granted])
        self.entries.append(self.granted)
        return self.granted


class Disk:
    """The folder of a hub that is killed again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "log.db"

    @asynccontextmanager
    async def started(self, **policy: int) -> AsyncIterator[tuple[HubDriver, CountedStore]]:
        """Start a hub; it ends as by SIGKILL, without a stop: what is committed is there."""
        async with await CountedStore.open(self.path) as store:
            store.loaded = []
            hub = Hub(Writer(9).public, Policy(**policy))
            driver = HubDriver(hub, store, Blobs(self.folder / "blobs"))
            await driver.start()
            try:
                yield driver, store
            finally:
                for task in (driver._ticker, driver._keeper._task):
                    assert task is not None
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                await driver.performer.stop()

    async def fill(self, *talks: Talk) -> None:
        """Store conversations at a hub that ends some seconds later."""
        async with self.started() as (driver, _):
            for talk in talks:
                await push(driver, talk, *talk.entries)
            await later(driver)

    @property
    def records(self) -> int:
        rows = query(self.path, "SELECT count(*) FROM meta WHERE key LIKE 'record of %'")
        return int(rows[0][0])


async def push(driver: HubDriver, talk: Talk, *entries: Entry) -> None:
    await driver.push(talk.writer.public, Entries(talk.id, entries), dict)


async def later(driver: HubDriver) -> None:
    """Let some seconds pass, in which nothing changes."""
    while await driver._keeper.write_unchanged(inf):
        pass


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.fixture
def _long_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "READ_ENTRIES_MAX", 2)


@pytest.fixture(autouse=True)
def _no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_keeper, "CHECK_S", 3_600.0)  # but for `later`


async def test_a_start_after_a_kill_reads_what_changed_just_before(disk: Disk) -> None:
    still, busy = Talk(1, 5_100), Talk(2, 5_100)
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
        assert len(held.log) == 5_101
        assert len(shelf[busy.id].log) == 5_103
        await later(driver)
    async with disk.started() as (_, store):
        assert store.loaded == []


async def test_few_entries_have_no_records(disk: Disk) -> None:
    await disk.fill(Talk(1), Talk(2))
    assert disk.records == 0


@pytest.mark.usefixtures("_long_logs")
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
        (before,) = await _stored(disk)
        flip_byte(disk.path, talk.entries[-1].header_bytes)
        twin = Talk(1, 4)
        other = twin.say("5")  # in place of "4"
        async with disk.started() as (driver, _):
            await driver.permitted(talk.writer.public, talk.id)  # which sets the row aside
        async with await Store.open(disk.path) as store:
            await store.append([other])
        (after,) = await _stored(disk)
        assert (before.entries, before.size_bytes) == (after.entries, after.size_bytes)
        assert disk.records == 1
        async with disk.started() as (driver, store):
            assert driver.hub.shelf.apart.is_outdated(talk.id)
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

    async def test_only_changes_of_the_membership_make_a_start_read(self, disk: Disk) -> None:
        talk, host, reader = Talk(1), Writer(7), Writer(8)
        talk.grant(host.public, Role.HOST)
        talk.grant(reader.public)
        await disk.fill(talk)
        async with disk.started() as (driver, _):
            await push(driver, talk, talk.say("more"), talk.ask(host.public))
        for _ in range(2):  # an outdated record is kept until there is another one
            async with disk.started() as (driver, store):
                await later(driver)
                assert store.loaded == []
                shelf, members = driver.hub.shelf, (talk.writer, host, reader)
                items = [item_of(shelf, talk.id, one.public) for one in members]
                assert all(item is not None and item.awaited for item in items)
                assert next(list_of(shelf, host.public)) == talk.id
        async with disk.started() as (driver, store):
            await driver.permitted(host.public, talk.id)
            items = [item_of(driver.hub.shelf, talk.id, one.public) for one in members]
            assert [item is not None and item.awaited for item in items] == [False, True, False]
            await later(driver)
            await push(driver, talk, talk.revoke(reader.public))
        async with disk.started() as (driver, store):
            assert store.loaded == [talk.id]
            assert item_of(driver.hub.shelf, talk.id, reader.public) is None

    async def test_one_that_changes_all_the_time_has_a_record(
        self, disk: Disk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(record_keeper, "OVERDUE_S", 0.0)
        talk = Talk(1)
        async with disk.started() as (driver, _):
            await push(driver, talk, *talk.entries)
            assert await driver._keeper.write_unchanged(-inf)
        assert disk.records == 1

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

    @pytest.mark.parametrize("seed", range(8))
    async def test_a_kill_at_any_time_serves_what_is_stored(self, disk: Disk, seed: int) -> None:
        rng = random.Random(seed)
        talks = [Talk(number, 2) for number in range(1, 5)]
        keys = [Writer(number).public for number in range(10, 14)]
        for _ in range(6):
            async with disk.started(conversations_in_memory_max=rng.randrange(4)) as (driver, _):
                for talk in rng.choices(talks, k=6):
                    change(talk, rng, keys)
                    await push(driver, talk, *talk.entries)
                    if rng.random() < 0.5:
                        await driver._keeper.write_unchanged(inf, count=rng.randrange(1, 3))
                    if rng.random() < 0.5:
                        driver._evict()
            async with disk.started() as (driver, _):
                for stored in await _stored(disk):
                    talk = next(one for one in talks if one.id == stored.conversation)
                    await _serves(driver, talk, [talk.writer.public, *keys])


def change(talk: Talk, rng: random.Random, keys: list[PublicKey]) -> None:
    """Let a conversation go on in any way."""
    key = rng.choice(keys)
    match rng.randrange(5):
        case 0:
            talk.grant(key, rng.choice([Role.READER, Role.HOST]))
        case 1:
            talk.revoke(key)
        case 2:
            talk.ask(key)
        case _:
            talk.say("x")


async def _serves(driver: HubDriver, talk: Talk, keys: list[PublicKey]) -> None:
    """Check that a start lists what the whole log says, and that it then serves all of it."""
    shelf = driver.hub.shelf
    before = {key: item_of(shelf, talk.id, key) for key in keys}
    held = await driver.permitted(talk.writer.public, talk.id)
    assert set(held.log.entries) == {entry.id for entry in talk.entries}
    for key, was in before.items():
        now = item_of(shelf, talk.id, key)
        assert (was is None) == (now is None), "who is a member is known without a load"
        if now is not None and now.awaited:
            assert was is not None
            assert was.awaited, "a host learns of each request that waits for it"


async def _stored(disk: Disk) -> list[Stored]:
    async with open_read_only(disk.path) as store:
        return await store.conversations()
