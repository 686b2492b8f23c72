"""A start by a record that is out of date lists whom the whole log names (DECISIONS D555)."""

import random
from math import inf

import pytest

from replica.ids import PublicKey
from replica.log.body import Role
from syncd.io import record_keeper
from syncd.io.driver import HubDriver
from syncd.links.listing import item_of, list_of
from tests.support.files import damage_root, flip_byte, query
from tests.support.writers import Writer
from tests.syncd.io.hub_disk import Disk, Talk, later, push, stored_logs, stored_records

DAMAGES = (
    "UPDATE membership SET id = zeroblob(32) || id WHERE id = ?",
    "UPDATE entries SET id = zeroblob(32) || id WHERE id = ?",
    "UPDATE membership SET conversation = 'text' WHERE id = ?",
    "UPDATE membership SET conversation = zeroblob(32) WHERE id = ?",
    "UPDATE entries SET conversation = zeroblob(32) WHERE id = ?",
    "UPDATE entries SET checksum = 0 WHERE id = ?",
)
"""Damage to one of the rows that name a membership entry."""


pytestmark = pytest.mark.usefixtures("long_logs")


async def test_only_changes_of_the_membership_make_a_start_read(disk: Disk) -> None:
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


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_hides_no_change_of_the_membership(disk: Disk, damage: str) -> None:
    talk, out, new = Talk(1), Writer(7), Writer(8)
    talk.grant(out.public)
    await disk.fill(talk, Talk(2))
    changes = talk.revoke(out.public), talk.grant(new.public)
    async with disk.started() as (driver, _):
        await push(driver, talk, *changes)
    for change in changes:
        query(disk.path, damage, change.id)
    async with disk.started() as (driver, store):
        assert talk.id in store.loaded
        assert item_of(driver.hub.shelf, talk.id, out.public) is None


async def test_an_entry_that_was_set_aside_makes_no_record_count_again(disk: Disk) -> None:
    talk, out = Talk(1), Writer(7)
    talk.grant(out.public)
    await disk.fill(talk)
    revocation = talk.revoke(out.public)
    async with disk.started() as (driver, _):
        await push(driver, talk, revocation)
    flip_byte(disk.path, revocation.header_bytes)
    for _ in range(3):  # the first one sets it aside
        async with disk.started() as (driver, store):
            assert store.loaded == [talk.id]
            assert driver.hub.shelf[talk.id].is_blocked
            assert item_of(driver.hub.shelf, talk.id, out.public) is None


async def test_no_record_is_made_while_the_list_of_membership_entries_can_not_be_read(
    disk: Disk,
) -> None:
    talk = Talk(1)
    await disk.fill(talk)
    assert (await stored_records(disk)).keys() == {talk.id}
    damage_root(disk.path, "membership")
    async with disk.started(conversations_in_memory_max=0) as (driver, store):
        assert set(store.loaded) == {talk.id}
        await later(driver)
    assert await stored_records(disk) == {}


async def test_one_that_changes_all_the_time_has_a_record(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_keeper, "OVERDUE_S", 0.0)
    talk = Talk(1)
    async with disk.started() as (driver, _):
        await push(driver, talk, *talk.entries)
        assert await driver._keeper.write_unchanged(-inf)
    assert disk.records == 1


@pytest.mark.parametrize("seed", range(8))
async def test_a_kill_at_any_time_serves_what_is_stored(disk: Disk, seed: int) -> None:
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
            for stored in await stored_logs(disk):
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
