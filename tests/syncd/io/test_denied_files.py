"""A log folder that can't be reached for a while, at the hub and at a replica: nothing is lost."""

from pathlib import Path

import pytest

from replica.errors import StoreError
from replica.ids import EntryId
from replica.io.driver.replica import Replica
from replica.io.store.folder_use import FILE
from replica.io.store.store import Store
from replica.io.store.tail import require_content
from replica.link.events import EntryFailed, Event
from replica.log.body import Genesis
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.callers import PATIENCE_S
from tests.support.modes import bound_by_modes, mode
from tests.support.talk import key_of
from tests.support.writers import said


async def test_entries_wait_for_a_hub_whose_log_folder_is_denied(tmp_path: Path) -> None:
    failures: list[EntryFailed] = []

    def note(event: Event) -> None:
        if isinstance(event, EntryFailed):
            failures.append(event)

    with bound_by_modes():
        hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
        async with Replica.open(tmp_path / "me" / "log.db", key_of(1), hub.address) as mine:
            mine.listen(note)
            conversation = await mine.create(Genesis((mine.public,)))
            assert await mine.wait_synced(conversation)
            with mode(tmp_path / "hub" / "log", 0):
                entry = await mine.append(
                    conversation, said("Hello."), parents=(EntryId(conversation),)
                )
                assert await mine.wait_for(lambda: bool(failures), PATIENCE_S)
                assert failures[0].fault.reason == StoreError.reason
                assert not failures[0].fault.detail.count(str(tmp_path))
            assert await mine.wait_synced(conversation)
            loaded = await hub.driver.store.load(conversation)
            assert entry in loaded.entries
        await hub.stop()


async def test_a_replica_whose_log_folder_is_denied_refuses_to_write_and_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log" / "log.db"
    with bound_by_modes():
        async with Replica.open(path, key_of(1)) as mine:
            conversation = await mine.create(Genesis((mine.public,)))
            with mode(path.parent, 0), pytest.raises(StoreError, match=str(path)) as caught:
                await mine.append(conversation, said("Hello."), parents=(EntryId(conversation),))
            assert caught.value.reason == StoreError.reason
            await mine.follow(conversation)
            entry = await mine.append(
                conversation, said("Hello again."), parents=(EntryId(conversation),)
            )
            loaded = await mine.store.load(conversation)
            assert [one for one in loaded.entries if one.id == entry.id] == [entry]
            assert len(loaded.entries) == 2


@pytest.mark.parametrize("is_noted", [True, False])
async def test_a_hub_does_not_start_on_a_log_folder_that_is_denied(
    tmp_path: Path, is_noted: bool
) -> None:
    folder = tmp_path / "hub"
    config = HubConfig(data_dir=folder, listen="127.0.0.1:0")
    await (await start(config)).stop()
    if not is_noted:
        (folder / FILE).unlink()
    with bound_by_modes(), mode(folder / "log", 0):
        with pytest.raises(StoreError, match=str(folder / "log")) as caught:
            await start(config)
        assert caught.value.reason == StoreError.reason


async def test_a_log_folder_that_is_denied_is_no_end_of_a_store_that_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log" / "log.db"
    await (await Store.open(path)).close()
    with bound_by_modes(), mode(path.parent, 0):
        with pytest.raises(StoreError, match=str(path)) as caught:
            require_content(path)
        assert caught.value.reason == StoreError.reason
