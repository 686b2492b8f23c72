"""A long log is restored in a thread, and its conversation is as it is by then (D322)."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from replica.conversation import Conversation
from replica.ids import ConversationId, Position, PublicKey
from replica.io.driver import long_logs
from replica.io.driver.replica import Replica
from replica.log import Genesis
from tests.replica.io.driver.test_shared_store import KEY, known, opened, say
from tests.support.callers import until
from tests.support.writers import Writer

HUB, OTHER_HUB = Writer(98).public, Writer(99).public


class Restoring:
    """Restores that go on once the event loop says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.may_end = threading.Event()
        self._restore = Conversation.restore
        monkeypatch.setattr(long_logs, "LONG_ENTRIES", 1)
        monkeypatch.setattr(Conversation, "restore", self)

    def __call__(self, *args: Any) -> Conversation:
        self.begun += 1
        assert self.may_end.wait(10), "the event loop waits for the restore"
        return self._restore(*args)


async def written(path: Path) -> ConversationId:
    """Store a conversation of two entries, and close the store."""
    async with Replica.open(path, KEY) as replica:
        conversation = await replica.create(Genesis((replica.public,)))
        await say(replica, conversation, "one")
    return conversation


@asynccontextmanager
async def loading(
    replica: Replica, conversation: ConversationId, restoring: Restoring
) -> AsyncIterator[None]:
    """Load a conversation, whose restore goes on during the block and ends behind it."""
    task = asyncio.create_task(replica.load(conversation))
    try:
        await until(lambda: restoring.begun > 0)
        yield
    finally:
        restoring.may_end.set()
        await task


async def test_the_loop_serves_others_while_a_long_log_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await written(tmp_path / "s")
    restoring = Restoring(monkeypatch)
    async with Replica.open(tmp_path / "s", KEY) as replica:
        async with loading(replica, conversation, restoring):
            assert conversation not in replica.shelf
        assert len(replica.shelf[conversation].log) == 2


async def test_what_another_process_writes_meanwhile_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await written(tmp_path / "s")
    async with opened(tmp_path / "s") as first, opened(tmp_path / "s") as second:
        await first.load(conversation)
        async with loading(second, conversation, Restoring(monkeypatch)):
            entry = await say(first, conversation, "two")
            await first.flush()
        await second.processes.barrier()
        assert entry in known(second, conversation)


async def test_what_is_deleted_meanwhile_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await written(tmp_path / "s")
    async with Replica.open(tmp_path / "s", KEY) as replica:
        async with loading(replica, conversation, Restoring(monkeypatch)):
            deleting = asyncio.create_task(replica.delete(conversation))
            await asyncio.sleep(0)
        await deleting
        assert conversation not in replica.shelf


async def test_the_acks_are_those_of_the_hub_that_is_linked_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await written(tmp_path / "s")
    async with Replica.open(tmp_path / "s", KEY) as replica:
        link_to(replica, HUB)
        entries = (await replica.store.load(conversation)).entries
        replica.acks.save(
            conversation, [Position(e.header.lane, e.header.seq, e.id) for e in entries]
        )
        async with loading(replica, conversation, Restoring(monkeypatch)):
            link_to(replica, OTHER_HUB)
        assert replica.hub.unsynced(conversation) == len(entries)


def link_to(replica: Replica, hub: PublicKey) -> None:
    """Count the acks of `hub`, as when it has proved its key."""
    replica.acks.hub = hub
    replica._core.holdings.use_hub(hub)
