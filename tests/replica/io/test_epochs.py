"""A lane is continued only if a peer has confirmed it (spec/02-entry §7)."""

import shutil
from pathlib import Path

from replica.ids import ConversationId, EntryId
from replica.io.replica import Replica
from replica.log.body import Genesis
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
