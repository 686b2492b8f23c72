"""Who holds a store while one process ends and the next one begins (DECISIONS D340).

Two replicas of one process stand for two processes.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest

from replica.errors import ReplicaClosed
from replica.ids import ConversationId, EntryId
from replica.io.driver.driver import ReplicaDriver
from replica.io.driver.holding import Holding
from replica.io.driver.replica import Replica
from replica.io.driver.shared_store import SharedStore
from replica.io.files.claims import Claims
from replica.io.store.store import Store
from replica.log import Entry, Genesis
from replica.refusals import StoreLocked
from tests.support.writers import Writer, said

KEY = Writer(1).key


def opened(path: Path) -> AbstractAsyncContextManager[Replica]:
    return Replica.open(path, KEY, shared=True)


class CountedOpenings:
    """Calls `reached` at the third try to take the lock of a store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, reached: Callable[[], None]) -> None:
        self._tries, self._reached, self._open = 0, reached, Store.open
        monkeypatch.setattr(Store, "open", self._counted)

    async def _counted(self, path: Path) -> Store:
        self._tries += 1
        if self._tries == 3:
            self._reached()
        return await self._open(path)


async def test_who_opens_while_the_holder_closes_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, is_closing, go_on = tmp_path / "s", asyncio.Event(), asyncio.Event()
    first = AsyncExitStack()
    serving = await first.enter_async_context(opened(path))
    assert isinstance(serving.store, SharedStore)
    store = serving.store.holding.own
    assert store is not None
    close = store.close

    async def slowly() -> None:
        is_closing.set()
        await go_on.wait()
        await close()

    monkeypatch.setattr(store, "close", slowly)
    monkeypatch.setattr("replica.io.driver.holding.OPEN_WAIT_S", 0.0)
    ending = asyncio.create_task(first.aclose())
    await is_closing.wait()
    CountedOpenings(monkeypatch, go_on.set)
    async with opened(path) as mine:
        assert mine.processes.served_by is None
    await ending


async def test_the_next_holder_waits_for_the_claim_of_the_one_before(tmp_path: Path) -> None:
    path, before = tmp_path / "s", Claims(tmp_path / "s")
    assert before.claim(b"holder")
    replica = opened(path)
    opening = asyncio.create_task(replica.__aenter__())
    while not (tmp_path / "s.lock").exists():  # noqa: ASYNC110  # the kernel tells nobody
        await asyncio.sleep(0)
    before.release(b"holder")
    mine = await opening
    assert before.is_claimed(b"holder")
    assert mine.processes.served_by is None
    before.close()
    await replica.__aexit__(None, None, None)


async def test_a_claim_that_stays_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Claims(tmp_path / "s")
    assert before.claim(b"holder")
    monkeypatch.setattr("replica.io.driver.holding.OPEN_WAIT_S", 0.0)
    monkeypatch.setattr("replica.io.driver.holding.CALL_WAIT_S", 0.0)
    with pytest.raises(StoreLocked, match="has not ended yet"):
        async with opened(tmp_path / "s"):
            pass
    before.close()
    async with opened(tmp_path / "s") as mine:
        assert mine.processes.served_by is None


async def test_a_call_beside_another_holder_that_is_cut_off_ends_with_its_replica(
    tmp_path: Path,
) -> None:
    """Its connection ends with it, and there is no next holder to wait for."""
    async with opened(tmp_path / "s") as holder:
        said_in = await holder.create(Genesis((holder.public,)))
        for turns in range(30):
            async with opened(tmp_path / "s") as mine:
                appended = mine.append(said_in, said("cut off"), parents=(EntryId(said_in),))
                read = mine.store.conversations()
                calls = [asyncio.create_task(call) for call in (appended, read)]
                for _ in range(turns):
                    await asyncio.sleep(0)
            async with asyncio.timeout(5):
                ends = await asyncio.gather(*calls, return_exceptions=True)
            assert all(one and isinstance(one, Entry | list | ReplicaClosed) for one in ends), ends


async def test_a_call_that_waits_for_the_next_holder_ends_with_its_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_late = asyncio.Event()

    async def late(_holding: Holding) -> None:
        is_late.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Holding, "_next", late)
    before = opened(tmp_path / "s")
    await before.__aenter__()
    async with opened(tmp_path / "s") as mine:
        await before.__aexit__(None, None, None)
        await is_late.wait()
        read = asyncio.create_task(mine.store.conversations())
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        with pytest.raises(ReplicaClosed):
            await read


async def test_an_entry_whose_caller_was_cancelled_is_sent_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered, offer = asyncio.Event(), ReplicaDriver.offer

    def note(driver: ReplicaDriver, conversation: ConversationId, ids: Iterable[EntryId]) -> None:
        offer(driver, conversation, ids)
        offered.set()

    async with opened(tmp_path / "s") as holder:
        said_in = await holder.create(Genesis((holder.public,)))
        async with opened(tmp_path / "s") as mine:
            monkeypatch.setattr(ReplicaDriver, "offer", note)
            task = asyncio.create_task(
                mine.append(said_in, said("kept"), parents=(EntryId(said_in),))
            )
            while not await sees(holder, said_in, 2):
                pass
            task.cancel()
            async with asyncio.timeout(5):
                await offered.wait()
    assert task.cancelled()


async def sees(holder: Replica, conversation: ConversationId, count: int) -> bool:
    await asyncio.sleep(0)
    return len(holder.shelf[conversation].log) == count
