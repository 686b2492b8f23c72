"""Signatures verified on a thread: order, marks, and what happens to bad ones."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from replica.io import verifier
from replica.io.verifier import Verifier
from replica.log.entry import Entry, verified
from tests.support.writers import Writer, said


@pytest.fixture
def under_test() -> Iterator[Verifier]:
    made = Verifier()
    yield made
    made.close()


def entries(count: int, seed: int = 1) -> list[Entry]:
    writer = Writer(seed)
    genesis = writer.genesis()
    conversation = genesis.conversation
    said_there = (writer.write(conversation, said("x"), parents=[genesis]) for _ in range(count))
    return [genesis, *said_there]


async def test_valid_entries_come_back_equal_and_marked(under_test: Verifier) -> None:
    written = entries(3)
    found = await under_test.verify(written)
    assert found == tuple(written)
    assert [entry.is_verified for entry in written] == [False] * 4
    assert [entry.is_verified for entry in found] == [True] * 4


async def test_a_forged_entry_comes_back_unmarked_and_spoils_no_other(
    under_test: Verifier,
) -> None:
    first, second, third = entries(2)
    forged = replace(second, signature=first.signature)
    found = await under_test.verify([first, forged, third])
    assert [entry.is_verified for entry in found] == [True, False, True]
    assert found[1] == forged


async def test_no_entries_are_no_work(under_test: Verifier) -> None:
    assert await under_test.verify(()) == ()


async def test_callers_at_the_same_time_share_hops_and_get_their_own(
    under_test: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    hops = []
    verify_all = verifier._verify_all
    monkeypatch.setattr(verifier, "_verify_all", lambda jobs: hops.append(0) or verify_all(jobs))
    logs = [entries(2, seed) for seed in range(1, 21)]
    found = await asyncio.gather(*map(under_test.verify, logs))
    assert [list(one) for one in found] == logs
    assert all(entry.is_verified for one in found for entry in one)
    assert len(hops) == 2  # the first caller's, and all that queued meanwhile


async def test_a_cancelled_caller_takes_nobody_along(under_test: Verifier) -> None:
    first, second = entries(1), entries(1, 2)
    cancelled = asyncio.create_task(under_test.verify(first))
    other = asyncio.create_task(under_test.verify(second))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await other == tuple(second)
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_what_breaks_on_the_thread_reaches_every_caller(
    under_test: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_entry: Entry) -> Entry:
        raise MemoryError

    monkeypatch.setattr(verifier, "verified", broken)
    results = await asyncio.gather(
        under_test.verify(entries(1)), under_test.verify(entries(1, 2)), return_exceptions=True
    )
    assert [type(result) for result in results] == [MemoryError, MemoryError]
    monkeypatch.setattr(verifier, "verified", verified)
    assert len(await under_test.verify(entries(1))) == 2
