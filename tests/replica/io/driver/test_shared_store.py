"""Several processes on one store: one log, one writer, a hand-over (DECISIONS D340 to D342).

Two replicas of one process stand for two processes, except where one is killed.
"""

import asyncio
import errno
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from dataclasses import replace
from pathlib import Path

import pytest

from replica.conversation import CallStarted, Chain, LaneMoved, Loaded, NewEntry, newest_place
from replica.ids import SALT_BYTES, ConversationId, EntryId, Track
from replica.io.driver.replica import Replica
from replica.io.driver.shared_store import SharedStore
from replica.io.local import local_socket
from replica.io.local.local_frames import WriteUnconfirmed
from replica.io.store import high_water
from replica.io.store.store import Store
from replica.log import Entry
from replica.log.body import Genesis, Message, Speaker, ToolStarted
from replica.refusals import StoreFull, StoreLocked, StoreVersionUnknown
from tests.support.writers import Writer, log, said

KEY = Writer(1).key


def opened(path: Path, label: str | None = None) -> AbstractAsyncContextManager[Replica]:
    return Replica.open(path, KEY, shared=True, label=label)


@asynccontextmanager
async def pair(path: Path) -> AsyncIterator[tuple[Replica, Replica, ConversationId]]:
    """Open a store twice, with one conversation; the first one serves."""
    async with opened(path, "first") as first, opened(path, "second") as second:
        conversation = await second.create(Genesis((second.public,)))
        await first.load(conversation)
        yield first, second, conversation


@asynccontextmanager
async def pair_to_part(
    path: Path,
) -> AsyncIterator[tuple[AsyncExitStack, Replica, Replica, ConversationId]]:
    """Open a store twice, with one conversation; the stack is that of the one that serves."""
    async with AsyncExitStack() as stack:
        first = AsyncExitStack()
        serving = await first.enter_async_context(opened(path))
        second = await stack.enter_async_context(opened(path))
        conversation = await serving.create(Genesis((serving.public,)))
        await second.load(conversation)
        yield first, serving, second, conversation


async def say(replica: Replica, conversation: ConversationId, words: str) -> EntryId:
    place = newest_place(await replica.load(conversation))
    entry = await replica.append(conversation, said(words), parents=place.parents)
    return entry.id


def known(replica: Replica, conversation: ConversationId) -> set[EntryId]:
    return set(replica.shelf[conversation].log.entries)


async def stored(path: Path, conversation: ConversationId) -> set[EntryId]:
    async with await Store.open(path) as store:
        return {entry.id for entry in (await store.load(conversation)).entries}


async def test_the_first_process_serves_the_second(tmp_path: Path) -> None:
    async with pair(tmp_path / "s") as (first, second, conversation):
        assert first.processes.served_by is None
        assert second.processes.served_by is not None
        assert second.processes.served_by.label == "first"
        both = await asyncio.gather(
            *(say(one, conversation, str(n)) for n in range(5) for one in (first, second))
        )
        await second.processes.barrier()
        assert known(first, conversation) == known(second, conversation) >= {*both}
        # One lane of messages, of the one writer: no position is used twice.
        lanes = first.shelf[conversation].log.equivocations()
        assert not lanes
        assert len(first.shelf[conversation].log.heads()) == 2
        assert await second.store.get_meta("name") is None
        await second.store.put_meta("name", b"trip")
        assert await first.store.get_meta("name") == b"trip"
    assert await stored(tmp_path / "s", conversation) >= {*both}


async def test_what_one_deletes_the_others_forget(tmp_path: Path) -> None:
    async with pair(tmp_path / "s") as (first, second, conversation):
        await second.delete(conversation)
        assert conversation not in first.shelf
        other = await first.create(Genesis((first.public,)))
        await second.load(other)
        await first.delete(other)
        await second.processes.barrier()
        assert not second.shelf


async def test_an_entry_that_two_processes_received_counts_once(tmp_path: Path) -> None:
    """The mark would be ahead of the store otherwise, and a repair would state a loss."""
    entries = log(3)
    async with await SharedStore.open(tmp_path / "s", Writer(1).public, None) as shared:
        for _ in range(2):
            await shared.append(entries)
    mark = high_water.read(tmp_path / "s")
    assert mark is not None
    assert mark.stored == len(entries)


async def test_a_process_that_ends_hands_over(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with AsyncExitStack() as stack:
        first = AsyncExitStack()
        serving = await first.enter_async_context(opened(path))
        second = await stack.enter_async_context(opened(path))
        third = await stack.enter_async_context(opened(path))
        conversation = await second.create(Genesis((second.public,)))
        await third.load(conversation)
        await say(serving, conversation, "before")
        # Their calls are in progress while the serving process ends.
        writing = [
            asyncio.create_task(say(one, conversation, f"{n}"))
            for n in range(20)
            for one in (second, third)
        ]
        await asyncio.sleep(0)
        await first.aclose()
        said_ids = await asyncio.gather(*writing)
        assert len({*said_ids}) == 40
        assert {one.processes.served_by is None for one in (second, third)} == {True, False}
        for one in (second, third):
            await one.processes.barrier()
            assert known(one, conversation) >= {*said_ids}
        entries = second.shelf[conversation].log.entries.values()
        words = [entry for entry in entries if entry.id not in said_ids]
        assert len(words) == 2, "nothing was written twice: the genesis, and one before"
        assert not second.shelf[conversation].log.equivocations()
    assert await stored(path, conversation) >= {*said_ids}
    assert not local_socket.socket_path(path).exists()


async def test_a_killed_process_loses_nothing_acked(tmp_path: Path) -> None:
    """Its reason for 2 s: a process of its own, which imports gRPC."""
    path = tmp_path / "s"
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.store_process", str(path),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert other.stdout is not None
    conversation = ConversationId(bytes.fromhex((await other.stdout.readline()).decode()))
    # It waits for nobody: with a full pipe it would not answer.
    reading = asyncio.create_task(other.stdout.read())
    async with opened(path) as mine:
        assert mine.processes.served_by is not None
        await mine.load(conversation)
        acked: list[EntryId] = []

        async def write() -> None:
            while len(acked) < 60:
                acked.append(await say(mine, conversation, "mine"))
                if len(acked) == 20:
                    other.kill()

        await write()
        theirs = [bytes.fromhex(line) for line in (await reading).decode().split()]
        await other.wait()
        assert mine.processes.served_by is None
        assert theirs
        assert {*acked, *theirs} <= known(mine, conversation)
        assert len({*acked}) == 60
        assert not mine.shelf[conversation].log.equivocations()
    assert {*acked, *theirs} <= await stored(path, conversation)


async def test_a_chain_given_again_is_written_once(tmp_path: Path) -> None:
    async with pair(tmp_path / "s") as (first, _, conversation):
        one, other = (NewEntry(said(text), os.urandom(SALT_BYTES)) for text in "ab")
        parents, writer = (EntryId(conversation),), first.processes._writer
        (written,) = await writer.write(conversation, Chain((one,), parents))
        # As from a process that did not get the answer.
        both = await writer.write(conversation, Chain((one, other), parents), again=True)
        assert both[0] == written
        assert both[1].header.parents == (written.id,)
        assert await writer.write(conversation, Chain((one, other), parents), again=True) == both
        assert len(known(first, conversation)) == 3


async def test_a_document_update_keeps_its_slot(tmp_path: Path) -> None:
    async with pair(tmp_path / "s") as (first, second, conversation):
        slot = await second.processes.slot(conversation, Track.CONVERSATION)
        place = newest_place(second.shelf[conversation])
        await first.append_at(conversation, slot, said("1"), parents=place.parents)
        with pytest.raises(LaneMoved):
            await second.append_at(conversation, slot, said("2"), parents=place.parents)
        again = await second.processes.slot(conversation, Track.CONVERSATION)
        assert again.seq == slot.seq + 1
        await second.append_at(conversation, again, said("2"), parents=place.parents)


async def test_a_call_is_started_once(tmp_path: Path) -> None:
    start = Message(Speaker.TOOL, (ToolStarted("call-1", "effect"),))
    async with pair(tmp_path / "s") as (first, second, conversation):
        opened_by = await say(first, conversation, "calls")
        await second.processes.barrier()
        results = await asyncio.gather(
            *(one.append(conversation, start, parents=(opened_by,)) for one in (first, second)),
            return_exceptions=True,
        )
        assert sorted(type(one).__name__ for one in results) == [CallStarted.__name__, "Entry"]


async def test_who_joins_a_process_that_ends_takes_its_place(tmp_path: Path) -> None:
    for turns in range(0, 60, 3):  # of the event loop, between the two
        path = tmp_path / str(turns)
        async with AsyncExitStack() as stack:
            first = AsyncExitStack()
            serving = await first.enter_async_context(opened(path))
            conversation = await serving.create(Genesis((serving.public,)))
            joining = asyncio.create_task(stack.enter_async_context(opened(path)))
            for _ in range(turns):
                await asyncio.sleep(0)
            await first.aclose()
            joined = await joining
            await say(joined, conversation, "after")
            assert joined.processes.served_by is None


async def test_a_lock_that_was_released_during_the_greeting_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    holder, ending = await Store.open(path), AsyncExitStack()
    listener = local_socket.listen(path)

    async def end(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Release the lock, and keep the connection without a word."""
        ending.callback(writer.close)
        local_socket.remove(path)
        await holder.close()

    server = await asyncio.start_unix_server(end, sock=listener)
    monkeypatch.setattr("replica.io.local.local_client.GREETING_S", 0.1)
    monkeypatch.setattr("replica.io.driver.holding.OPEN_WAIT_S", 0.0)
    async with ending, opened(path) as mine:
        assert mine.processes.served_by is None
        server.close()


class SlowDisk:
    """A disk on which the process that holds a store waits until `go_on` is set."""

    def __init__(self, replica: Replica) -> None:
        assert isinstance(replica.store, SharedStore)
        store = replica.store.holding.own
        assert store is not None
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self._append = store.append
        store.append = self._slowly  # type: ignore[method-assign]

    async def _slowly(self, entries: Sequence[Entry], **given: bool) -> None:
        self.begun.set()
        await self.go_on.wait()
        await self._append(entries, **given)


async def test_a_write_without_an_answer_is_open_and_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path / "s") as (first, second, conversation):
        disk = SlowDisk(first)
        with monkeypatch.context() as patch:
            patch.setattr("replica.io.local.local_client.ANSWER_S", 0.05)
            for words in ("begun", "waits behind it"):
                with pytest.raises(WriteUnconfirmed) as unconfirmed:
                    await say(second, conversation, words)
                assert not unconfirmed.value.retryable
        disk.go_on.set()
        # Requests are performed in order: both are decided once this one is answered.
        await second.processes.barrier()
        assert known(first, conversation) == known(second, conversation)
        (written,) = known(second, conversation) - {EntryId(conversation)}
        body = second.shelf[conversation].log.body(written)
        assert body == replace(said("begun"), label="second")


async def test_a_write_is_open_if_nobody_takes_the_place_of_a_killed_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair_to_part(tmp_path / "s") as (first, serving, second, conversation):
        disk = SlowDisk(serving)
        writing = asyncio.create_task(say(second, conversation, "once"))
        await disk.begun.wait()
        assert isinstance(second.store, SharedStore)
        client = second.store.holding.client
        assert client is not None
        full = FullDisk(monkeypatch)
        with monkeypatch.context() as patch:
            patch.setattr("replica.io.driver.holding.CALL_WAIT_S", 0.05)
            client.close()  # as its end does; it still holds the lock
            with pytest.raises(WriteUnconfirmed):
                await writing
        full.free()
        disk.go_on.set()
        await first.aclose()
        await second.processes.barrier()
        assert len(known(second, conversation)) == 2


class FullDisk:
    """A disk without room for the name of a socket, until `free` is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._is_full = True
        self._address = local_socket._address
        monkeypatch.setattr(local_socket, "_address", self._refusing)

    def _refusing(self, path: Path) -> AbstractContextManager[str]:
        if self._is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._address(path)

    def free(self) -> None:
        self._is_full = False


async def test_a_hand_over_that_the_disk_refuses_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair_to_part(tmp_path / "s") as (first, _, second, conversation):
        disk = FullDisk(monkeypatch)
        await first.aclose()
        assert isinstance(second.store, SharedStore)
        while second.store.holding._failure is None:  # noqa: ASYNC110  # no event tells it
            await asyncio.sleep(0)
        with monkeypatch.context() as patch, pytest.raises(StoreFull):
            patch.setattr("replica.io.driver.holding.CALL_WAIT_S", 0.05)
            await second.processes.slot(conversation, Track.CONVERSATION)
        waiting = asyncio.create_task(say(second, conversation, "while it is full"))
        await asyncio.sleep(0)
        disk.free()
        await waiting
        await say(second, conversation, "after")
        assert second.processes.served_by is None
        assert len(known(second, conversation)) == 3


async def test_a_store_that_can_not_be_shared_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    with pytest.raises(StoreFull):
        async with opened(tmp_path / "s"):
            pass
    disk.free()
    async with opened(tmp_path / "s") as mine:
        assert mine.processes.served_by is None


async def test_a_reason_that_does_not_pass_ends_the_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair_to_part(tmp_path / "s") as (first, _, second, conversation):

        async def newer(_path: Path) -> Store:
            raise StoreVersionUnknown

        monkeypatch.setattr(Store, "open", newer)
        await first.aclose()
        for _ in range(2):
            with pytest.raises(StoreVersionUnknown):
                await second.processes.slot(conversation, Track.CONVERSATION)


async def test_who_shares_with_nobody_locks_everybody_out(tmp_path: Path) -> None:
    async with Replica.open(tmp_path / "s", KEY):
        with pytest.raises(StoreLocked):
            async with opened(tmp_path / "s"):
                pass


async def test_a_write_in_progress_is_announced_while_its_process_ends(tmp_path: Path) -> None:
    async with pair_to_part(tmp_path / "s") as (first, serving, second, conversation):
        disk = SlowDisk(serving)
        writing = asyncio.create_task(say(second, conversation, "while it ends"))
        await disk.begun.wait()
        ending = asyncio.create_task(first.aclose())
        await asyncio.sleep(0)
        disk.go_on.set()
        written = await writing
        await ending
        assert known(second, conversation) == {EntryId(conversation), written}


async def test_a_written_entry_that_was_not_announced_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path / "s") as (first, second, conversation):
        # As one that is lost with its connection, between the two.
        monkeypatch.setattr(first.processes, "announce", lambda *_: None)
        written = await say(second, conversation, "not announced")
        assert known(second, conversation) == {EntryId(conversation), written}


async def test_a_written_entry_that_is_gone_again_is_unconfirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path / "s") as (first, second, conversation):
        monkeypatch.setattr(first.processes, "announce", lambda *_: None)
        before = await second.store.load(conversation)

        async def restored(_conversation: ConversationId) -> Loaded:
            """Return what a backup holds that was put in the place of the file."""
            return before

        monkeypatch.setattr(second.store, "load", restored)
        with pytest.raises(WriteUnconfirmed, match="which the store does not hold") as gone:
            await say(second, conversation, "gone")
        assert not gone.value.retryable
