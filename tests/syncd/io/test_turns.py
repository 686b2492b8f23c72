"""Turns of refusals and of calls without a key."""

import asyncio

import pytest

from replica import limits
from syncd.bounds.bucket import Bucket
from syncd.io.turns import Turns
from tests.support.callers import until

ONE, TWO, AFAR = "ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2", "ipv4:192.0.2.1:3"


class Slow(Turns):
    """Turns that come when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._bucket = Bucket(1e-6, 0)

    def due(self, turns: int) -> None:
        """Let so many turns be due, and give them."""
        self._bucket = Bucket(1e-6, turns)
        self._grant()


async def waiting(turns: Turns, connections: list[str]) -> "list[asyncio.Task[bool]]":
    """Begin to wait, in this order."""
    tasks = []
    for connection in connections:
        before = turns._waiting
        tasks.append(asyncio.create_task(turns.turn(connection)))
        await until(lambda before=before: turns._waiting > before)
    return tasks


async def done(tasks: "list[asyncio.Task[bool]]") -> list[bool]:
    await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def test_the_first_turns_come_at_once_and_the_next_in_time() -> None:
    turns = Turns()
    turns._bucket = Bucket(per_s=1_000.0, most=2)
    async with asyncio.timeout(20):
        assert await turns.turn(ONE)
        assert await turns.turn(ONE)
        assert await turns.turn(ONE)  # waits, unless a slow machine has let it come due


async def test_addresses_and_then_connections_take_turns_however_many_calls_wait() -> None:
    turns = Slow()
    tasks = await waiting(turns, [ONE, ONE, ONE, ONE, TWO, AFAR])
    turns.due(2)
    assert await done(tasks) == [True, False, False, False, False, True]
    turns.due(1)
    assert await done(tasks) == [True, False, False, False, True, True]
    turns.due(3)
    assert await asyncio.gather(*tasks) == [True] * 6


async def test_who_left_takes_no_turn() -> None:
    turns = Slow()
    tasks = await waiting(turns, [ONE, ONE, ONE])
    for task in tasks[:2]:
        task.cancel()
    await asyncio.sleep(0)
    turns.due(1)
    assert await tasks[2]
    assert not turns._waiting


async def test_so_many_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STRANGER_CALLS_MAX", 2)
    turns = Slow()
    tasks = await waiting(turns, [ONE, ONE])
    assert not await turns.turn(ONE)
    turns.due(2)
    assert await asyncio.gather(*tasks) == [True, True]


async def test_a_lacking_place_is_taken_from_the_address_with_most_and_there_from_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "STRANGER_CALLS_MAX", 6)
    turns = Slow()
    tasks = await waiting(turns, [ONE, ONE, ONE, ONE, TWO, TWO])
    for newcomer in (AFAR, AFAR, TWO):
        tasks.append(asyncio.create_task(turns.turn(newcomer)))
        await asyncio.sleep(0)
    assert turns._waiting == 6
    assert await done(tasks) == [False, False, True, True, False, False, False, False, True]
    assert not any([await tasks[2], await tasks[3], await tasks[8]])
    turns.due(6)
    assert all([await tasks[at] for at in (0, 1, 4, 5, 6, 7)])
    assert not turns._waiting
    assert not turns._by_address
    assert not turns._by_connection


async def test_a_newcomer_gets_a_place_of_its_own_address_where_no_other_has_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "STRANGER_CALLS_MAX", 4)
    turns = Slow()
    tasks = await waiting(turns, [AFAR, AFAR, ONE, ONE])
    tasks.append(asyncio.create_task(turns.turn(TWO)))
    await asyncio.sleep(0)
    assert await done(tasks) == [False, False, False, True, False]
    assert not await turns.turn(TWO)
    turns.due(4)
    assert await asyncio.gather(*tasks) == [True, True, True, False, True]


async def test_where_each_address_has_one_place_a_newcomer_gets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "STRANGER_CALLS_MAX", 1)
    turns = Slow()
    tasks = await waiting(turns, [AFAR])
    assert not await turns.turn(ONE)
    assert await done(tasks) == [False]


async def test_a_network_of_ipv6_has_the_places_of_one_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "STRANGER_CALLS_MAX", 3)
    turns = Slow()
    one_network = [f"ipv6:%5B2001:db8::{host}%5D:7" for host in ("1", "2:3", "ffff:0:0:1")]
    tasks = await waiting(turns, one_network)
    others = ["ipv6:%5B2001:db8:0:1::1%5D:7", "ipv4:192.0.2.1:3"]
    tasks += [asyncio.create_task(turns.turn(one)) for one in others]
    await asyncio.sleep(0)
    assert await done(tasks) == [True, True, False, False, False]


async def test_a_connection_whose_only_call_lost_its_place_may_wait_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "STRANGER_CALLS_MAX", 2)
    turns = Slow()
    tasks = await waiting(turns, [ONE, TWO])
    tasks.append(asyncio.create_task(turns.turn(AFAR)))
    await asyncio.sleep(0)
    assert await done(tasks) == [True, False, False]
    turns.due(1)
    again = await waiting(turns, [ONE])
    turns.due(2)
    assert await asyncio.gather(*tasks, *again) == [False, True, True, True]
