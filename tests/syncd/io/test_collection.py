"""Passes of the garbage collector: short ones where much is new, full ones rarely (LINK-92)."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from replica.conversation.conversation import Conversation
from syncd.io import collection as module
from syncd.io.collection import FULL_PASS_S, Collection
from syncd.shelves.shelf import HubShelf
from tests.support.writers import Writer


@pytest.fixture(autouse=True)
def frozen_again() -> Iterator[None]:
    """Begin with nothing frozen; then spare other tests' passes the modules again (conftest.py).

    Each pass over all of them takes half a second, and there are many to come.
    """
    gc.unfreeze()
    yield
    gc.freeze()


def _shelf(count: int, bytes_max: int) -> HubShelf:
    shelf = HubShelf(100, bytes_max)
    for number in range(count):
        genesis = Writer(1, epoch=number + 1).genesis()
        shelf.load(Conversation.restore(genesis.conversation, [genesis]))
    return shelf


def test_a_full_pass_comes_after_some_time() -> None:
    shelf = _shelf(0, 1)
    collection = Collection(shelf)
    assert not collection.is_due(collection._passed_at + FULL_PASS_S - 1)
    assert collection.is_due(collection._passed_at + FULL_PASS_S)
    passed_at = collection._passed_at + FULL_PASS_S
    try:
        collection.collect(passed_at)
        assert not collection.is_due(passed_at)
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_a_long_log_that_was_just_loaded_is_in_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[bool] = []
    monkeypatch.setattr(gc, "collect", lambda: passes.append(True))
    monkeypatch.setattr(module, "LOADED_BYTES_MAX", 8_000)
    shelf = _shelf(3, 1)  # of 9 to 12 kB
    collection = Collection(shelf)
    collection._passed_at = 0.0
    try:
        collection.collect(0.0)
        assert (len(passes), gc.get_freeze_count() > 0) == (0, True)
        collection.collect(1.0)
        assert len(passes) == 1
        shelf.load(next(iter(shelf.values())))
        collection.collect(2.0)
        assert len(passes) == 2  # a short one is
        for held in tuple(shelf.values()):
            shelf.load(held)
        collection.collect(collection._passed_at + FULL_PASS_S)
        assert len(passes) == 3  # a full pass looks at all
    finally:
        gc.unfreeze()


async def test_while_it_runs_no_pass_is_full_and_then_all_is_as_before() -> None:
    before = gc.get_threshold()
    running = asyncio.create_task(Collection(_shelf(0, 1)).run())
    await asyncio.sleep(0)
    assert gc.get_threshold()[2] > 1_000_000
    assert gc.get_freeze_count() > 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


async def test_a_pass_comes_before_its_time_where_much_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PASS_S", 3_600.0)
    passes = asyncio.Queue[float]()
    collection = Collection(_shelf(0, 1))
    monkeypatch.setattr(collection, "collect", passes.put_nowait)
    callbacks = len(gc.callbacks)
    running = asyncio.create_task(collection.run())
    async with asyncio.timeout(20):
        await passes.get()
        for _ in range(2):  # one pass does not take the next one's cause away
            kept = [[None] for _ in range(30_000)]
            await passes.get()
            del kept
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(gc.callbacks) == callbacks


def test_conversations_beyond_the_bytes_for_them_are_evicted_the_oldest_first() -> None:
    shelf = _shelf(4, 8_000)
    assert all(3_000 < held.memory_bytes < 4_000 for held in shelf.values())
    oldest = list(shelf)[:2]
    assert shelf.evict(frozenset().__contains__) == tuple(oldest)
    assert len(shelf) == 2
    assert shelf.evict(frozenset().__contains__) == ()
