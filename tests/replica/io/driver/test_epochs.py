"""A lane is continued only if a peer has confirmed it (spec/02-entry §7)."""

import asyncio
import shutil
from pathlib import Path

from replica.ids import ConversationId, EntryId, Lane
from replica.io.driver.replica import Replica
from replica.log.body import Genesis
from syncd.io.config import HubConfig
from syncd.io.server import start
from tests.support.writers import Writer, said

KEY = Writer(1).key


async def _append(replica: Replica, conversation: ConversationId) -> int:
    entry = await replica.append(conversation, said("x"), parents=(EntryId(conversation),))
    return entry.header.epoch


async def test_a_store_that_no_peer_confirmed_begins_a_new_epoch(tmp_path: Path) -> None:
    async with Replica.open(tmp_path / "store", KEY) as replica:
        conversation = await replica.create(Genesis((replica.public,)))
        first = await _append(replica, conversation)
        assert await _append(replica, conversation) == first
    async with Replica.open(tmp_path / "store", KEY) as replica:
        assert await _append(replica, conversation) != first


async def test_a_restored_backup_writes_no_second_history(tmp_path: Path) -> None:
    async with Replica.open(tmp_path / "store", KEY) as replica:
        conversation = await replica.create(Genesis((replica.public,)))
        await _append(replica, conversation)
    shutil.copytree(tmp_path, tmp_path.parent / "backup")
    lanes = []
    for folder in (tmp_path, tmp_path.parent / "backup"):
        async with Replica.open(folder / "store", KEY) as replica:
            await _append(replica, conversation)
            lanes.append(set((await replica.load(conversation)).log.heads()))
    assert len(lanes[0] & lanes[1]) == 2
    assert {h.lane for h in lanes[0] ^ lanes[1]} == {h.lane for h in lanes[0] | lanes[1]} - {
        h.lane for h in lanes[0] & lanes[1]
    }


async def test_two_devices_of_a_key_do_not_go_on_in_each_other_s_lanes(tmp_path: Path) -> None:
    """Both wrote at once behind the newest entry of the key, which forked its lane."""
    hub = await start(HubConfig(data_dir=tmp_path / "hub", listen="127.0.0.1:0"))
    lanes: list[set[Lane]] = []
    try:
        async with Replica.open(tmp_path / "one", KEY, hub.address) as one:
            conversation = await one.create(Genesis((one.public,)))
            assert await one.wait_synced(conversation)
        for _ in range(3):  # each is opened again
            async with (
                Replica.open(tmp_path / "one", KEY, hub.address) as one,
                Replica.open(tmp_path / "other", KEY, hub.address, follow=True) as other,
            ):
                await one.follow(conversation)
                assert await other.wait_for(lambda: conversation in other.shelf, 10)
                for device in (one, other):
                    assert await device.wait_synced(conversation)
                written = await asyncio.gather(
                    *(_append(one, conversation), _append(other, conversation))
                )
                assert written[0] != written[1]
                for device in (one, other, one):
                    assert await device.wait_synced(conversation)
                log = one.shelf[conversation].log
                assert [lane for lane in log.lanes() if log.lane_fork(lane) is not None] == []
                lanes.append(set(log.lanes_of(one.public)))
    finally:
        await hub.stop()
    assert lanes[0] == lanes[1] == lanes[2], "each goes on in its own"
